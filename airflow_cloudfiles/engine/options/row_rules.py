"""Declare the rules for rows: `expect.row.<name>`, a predicate, and what becomes of other rows.

`expect.row.<name>.onViolation` says that. The name of a rule is the user's, so options of rules are
known by what they begin with. Names are compared without case, as those of options are, and shown
in lower case.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, get_args

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.messages import cut
from airflow_cloudfiles.engine.options.values import ValueKind, choice

PREFIX: Final = "expect.row."
"""How the names of these options begin, in lower case."""
ACTION: Final = "onViolation"
VIOLATIONS: Final = "violations."
"""Begins the name of a count: the rows of a batch that violate a rule."""
RuleAction = Literal["warn", "drop", "fail", "quarantine"]
_ACTIONS: Final = choice(get_args(RuleAction))
_NAME: Final = re.compile(r"[a-z_][a-z0-9_-]{0,99}")
HINT: Final = (
    "A rule is a condition in SQL over the columns of a row, such as amount > 0, "
    "status IN ('new', 'paid'), name LIKE 'A%', or CAST(day AS DATE) IS NOT NULL. See "
    "docs/how-to/check-rows.md."
)
"""What can be written, for errors."""


@dataclass(frozen=True, slots=True)
class RowRule:
    """What is expected of each row.

    Attributes:
        name: Of the rule.
        predicate: In SQL. A row violates the rule where it is false or NULL.
        action: What becomes of such a row: `warn`: it is counted and kept; `drop`: it is counted
            and left out; `fail`: nothing of its batch is committed; `quarantine`: it goes into the
            quarantine table.
    """

    name: str
    predicate: str
    action: RuleAction = "warn"

    @property
    def option(self) -> str:
        """The name of its option."""
        return f"{PREFIX}{self.name}"

    @property
    def needs_files(self) -> bool:
        """Whether it has to be known which file a row is from."""
        return self.action in {"fail", "quarantine"}


def is_rule_option(name: str) -> bool:
    """Tell whether an option is one of a rule."""
    return name.lower().startswith(PREFIX)


def read_rules(given: Mapping[str, str]) -> tuple[RowRule, ...]:
    """Read the options of rules.

    Args:
        given: Their texts by name.

    Returns:
        The rules by name; one that only has an action has no predicate (`require_predicates`).

    Raises:
        OptionError: A name, a predicate or an action that is none.
    """
    # Most streams have no rules.
    from airflow_cloudfiles.engine.options import predicate  # noqa: PLC0415

    predicates: dict[str, str] = {}
    actions: dict[str, RuleAction] = {}
    for option, text in given.items():
        name, dot, ending = option[len(PREFIX) :].lower().partition(".")
        if not _NAME.fullmatch(name):
            raise OptionError(
                f"{option}: a rule has a name of letters, digits, _ and -, such as "
                f"{PREFIX}positive_amount, got {cut(name)!r}."
            )
        if not dot:
            predicate.parse(option, text, hint=HINT)
            predicates[name] = text
        elif ending == ACTION.lower():
            actions[name] = _ACTIONS.read(option, text)
        else:
            raise OptionError(
                f"{option} is no option of a rule. Did you mean {PREFIX}{name}.{ACTION}?"
            )
    names = sorted(predicates.keys() | actions.keys())
    return tuple(RowRule(n, predicates.get(n, ""), actions.get(n, "warn")) for n in names)


def require_predicates(rules: Iterable[RowRule]) -> None:
    """Refuse an action of a rule that does not exist.

    Raises:
        OptionError: There is one; the text names the nearest rule.
    """
    known = [each.name for each in rules if each.predicate]
    for each in rules:
        if not each.predicate:
            near = difflib.get_close_matches(each.name, known, n=1)
            hint = f" Did you mean {PREFIX}{near[0]}.{ACTION}?" if near else ""
            raise OptionError(
                f"{each.option}.{ACTION} is of a rule that is not given.{hint} Give its predicate "
                f"as {each.option}."
            )


RULES: Final = ValueKind("predicate", lambda name, text: read_rules({name: text}))
"""The predicate of a rule, or its action."""
