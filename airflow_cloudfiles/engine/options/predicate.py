"""Read a predicate in SQL into a tree.

All options that take a predicate are read here: rules for rows (`expect.row.<name>`), and
`replaceWhere`, `mergeDeleteWhen` and `--where`, which take a part (`tables.delta.predicates`).
The tree is what is evaluated, or written as SQL anew: no text of a user gets into a statement.

A predicate is read when a DAG is parsed, where neither columns nor PyArrow are at hand. So this
knows the words, the functions and how many arguments they take, and nothing of types.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.messages import cut

_OTHERS: Final = (
    r"|(?P<quoted>`(?:[^`]|``)+`)"
    r"|(?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)(?![^\W\d])"
    r"|(?P<sign><=>|<=|>=|<>|!=|==|=|<|>|\(|\)|,|\.|\+|-|\*|/)|(?P<word>[^\W\d]\w*))"
)
_PLAIN: Final = re.compile(r"\s*(?:(?P<text>'(?:[^']|'')*')" + _OTHERS)
_ESCAPED: Final = re.compile(
    r"\s*(?:(?P<raw>[rR](?:'[^']*'|\"[^\"]*\"))"
    r"|(?P<text>'(?:[^'\\]|''|\\.)*'|\"(?:[^\"\\]|\"\"|\\.)*\")" + _OTHERS,
    re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_NAMED: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "0": "\0", "Z": "\x1a"}
_KEPT: Final = frozenset("%_")
"""What keeps its backslash: it is one of LIKE."""
SAME: Final[Mapping[str, str]] = {"==": "=", "!=": "<>"}
COMPARISONS: Final = frozenset({"=", "<>", "<", "<=", ">", ">=", "<=>"})
_WORDS: Final = frozenset((
    "and", "or", "not", "in", "is", "null", "between", "true", "false", "like", "ilike", "rlike",
    "regexp", "escape", "case", "when", "then", "else", "end", "cast", "try_cast",
))  # fmt: skip
FUNCTIONS: Final[Mapping[str, tuple[int, int]]] = {
    "abs": (1, 1), "char_length": (1, 1), "character_length": (1, 1), "coalesce": (1, 20),
    "concat": (1, 20), "contains": (2, 2), "day": (1, 1), "dayofmonth": (1, 1),
    "endswith": (2, 2), "if": (3, 3), "ifnull": (2, 2), "isnan": (1, 1), "isnotnull": (1, 1),
    "isnull": (1, 1), "length": (1, 1), "lower": (1, 1), "ltrim": (1, 1), "month": (1, 1),
    "nullif": (2, 2), "nvl": (2, 2), "regexp_like": (2, 2), "rtrim": (1, 1), "size": (1, 1),
    "startswith": (2, 2), "trim": (1, 1), "upper": (1, 1), "year": (1, 1),
}  # fmt: skip
"""How many arguments each function takes, at least and at most."""
_CHANGING: Final = frozenset((
    "current_date", "current_timestamp", "now", "rand", "random", "randn", "uuid",
    "localtimestamp", "getdate",
))  # fmt: skip
"""Functions whose value changes, so that a batch that is read again would have other rows."""
TYPES: Final = frozenset((
    "string", "boolean", "byte", "tinyint", "short", "smallint", "int", "integer", "long",
    "bigint", "float", "real", "double", "decimal", "dec", "numeric", "date", "timestamp",
    "timestamp_ltz", "timestamp_ntz",
))  # fmt: skip
"""Types of CAST; a decimal has a precision and a scale."""
_MOST_DEPTH: Final = 50
_MOST_TOKENS: Final = 5000


@dataclass(frozen=True, slots=True)
class ColumnName:
    """A column, or a field inside one."""

    parts: tuple[str, ...]

    @property
    def text(self) -> str:
        """The name as it was written, without quotes."""
        return ".".join(self.parts)


@dataclass(frozen=True, slots=True)
class LiteralValue:
    """A literal.

    Attributes:
        kind: `text`, `number`, `boolean`, `null`, `date` or `timestamp`.
        text: As it was written, without quotes and escapes.
    """

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class PredicateOperation:
    """An operator or a function, with what it is applied to.

    Attributes:
        word: A comparison (`=`, `<>` ... `<=>`), `and`, `or`, `not`, `is null`, `in`, `like`,
            `ilike`, `rlike`, `+`, `-`, `*`, `/`, `case` (conditions and values in turn, then the
            value of `ELSE`), `cast`, or one of `FUNCTIONS`.
        arguments: In their order.
        kind: The type of a `cast`, with its precision and scale.
    """

    word: str
    arguments: tuple[Node, ...]
    kind: tuple[str, tuple[int, ...]] = ("", ())


Node: TypeAlias = "ColumnName | LiteralValue | PredicateOperation"


def parse(option: str, text: str, *, hint: str, has_escapes: bool = True) -> Node:
    r"""Read a predicate.

    Args:
        option: Its name, for errors.
        text: The predicate.
        hint: What can be written, for errors, as a sentence.
        has_escapes: Whether texts have Spark's escapes (`\'`, `\\`, `r'...'`) and may be in double
            quotes; otherwise a backslash is one.

    Raises:
        OptionError: It is none, or has what is not supported.
    """
    parser = _Parser(option, text, hint, has_escapes=has_escapes)
    found = parser.disjunction(0)
    parser.end()
    return found


def unusable(option: str, text: str, reason: str, hint: str) -> OptionError:
    """Build the error for a predicate that cannot be used."""
    return OptionError(f"{option} {cut(text)!r} cannot be used: {reason}. {hint}")


def names_in(node: Node) -> Iterator[ColumnName]:
    """Yield the columns of a predicate."""
    if isinstance(node, ColumnName):
        yield node
    elif isinstance(node, PredicateOperation):
        for each in node.arguments:
            yield from names_in(each)


def unescaped(text: str) -> str:
    r"""Give the text that Spark reads in a literal with escapes; `\%` and `\_` stay as they are."""

    def one(found: re.Match[str]) -> str:
        mark = found[1]
        if len(mark) > 1:
            return chr(int(mark[1:], 16))
        return found[0] if mark in _KEPT else _NAMED.get(mark, mark)

    return _ESCAPE.sub(one, text)


class _Parser:
    """Reads a predicate from left to right, by Spark's precedence."""

    def __init__(self, option: str, text: str, hint: str, *, has_escapes: bool) -> None:
        self._option = option
        self._text = text
        self._hint = hint
        self._has_escapes = has_escapes
        self._tokens = list(self._split())
        self._at = 0

    def _split(self) -> Iterator[tuple[str, str]]:
        at, pattern = 0, _ESCAPED if self._has_escapes else _PLAIN
        count = 0
        while self._text[at:].strip():
            found = pattern.match(self._text, at)
            if found is None or found.end() == at:
                raise self._wrong(f"{cut(self._text[at:].strip(), 20)!r} is not understood")
            yield self._token(str(found.lastgroup), found[str(found.lastgroup)])
            at = found.end()
            count += 1
            if count > _MOST_TOKENS:
                raise self._wrong(f"it has more than {_MOST_TOKENS} words and signs")

    def _token(self, kind: str, text: str) -> tuple[str, str]:
        if kind == "raw":
            return "text", text[2:-1]
        if kind in {"text", "quoted"}:
            plain = text[1:-1].replace(text[0] * 2, text[0])
            return kind, unescaped(plain) if kind == "text" and self._has_escapes else plain
        if kind == "word" and text.lower() in _WORDS:
            return "keyword", text.lower()
        return kind, text

    def end(self) -> None:
        """Refuse what is left."""
        if self._at < len(self._tokens):
            raise self._wrong(f"{cut(self._tokens[self._at][1])!r} is not expected")

    def disjunction(self, depth: int) -> Node:
        """Parse `a OR b OR c`."""
        found = self._conjunction(depth)
        while self._take("or"):
            found = PredicateOperation("or", (found, self._conjunction(depth)))
        return found

    def _conjunction(self, depth: int) -> Node:
        found = self._negation(depth)
        while self._take("and"):
            found = PredicateOperation("and", (found, self._negation(depth)))
        return found

    def _negation(self, depth: int) -> Node:
        if depth > _MOST_DEPTH:
            raise self._wrong("it is nested too deeply")
        if self._take("not"):
            return PredicateOperation("not", (self._negation(depth + 1),))
        return self._comparison(depth)

    def _comparison(self, depth: int) -> Node:
        left = self._sum(depth)
        if self._take("is"):
            is_not = self._take("not")
            return _negated(self._test(left), is_not=is_not)
        kind, text = self._peek()
        sign = SAME.get(text, text)
        if kind == "sign" and sign in COMPARISONS:
            self._at += 1
            return PredicateOperation(sign, (left, self._sum(depth)))
        is_not = self._take("not")
        found = self._matched(left, depth)
        if found is None:
            if is_not:
                raise self._wrong("IN, BETWEEN, LIKE or RLIKE is expected behind NOT")
            return left
        return _negated(found, is_not=is_not)

    def _test(self, left: Node) -> Node:
        """Parse what follows IS."""
        if self._take("null"):
            return PredicateOperation("is null", (left,))
        for word in ("true", "false"):
            if self._take(word):
                return PredicateOperation("<=>", (left, LiteralValue("boolean", word)))
        raise self._wrong("NULL, TRUE or FALSE is expected behind IS")

    def _matched(self, left: Node, depth: int) -> Node | None:
        """Parse what compares with several values or a pattern; `None` where nothing does."""
        if self._take("in"):
            self._expect("(")
            return PredicateOperation("in", (left, *self._list(depth)))
        if self._take("between"):
            low = self._sum(depth)
            self._expect("and")
            high = self._sum(depth)
            return PredicateOperation(
                "and",
                (PredicateOperation(">=", (left, low)), PredicateOperation("<=", (left, high))),
            )
        for word in ("like", "ilike"):
            if self._take(word):
                pattern = self._sum(depth)
                escape = (self._sum(depth),) if self._take("escape") else ()
                return PredicateOperation(word, (left, pattern, *escape))
        if self._take("rlike") or self._take("regexp"):
            return PredicateOperation("rlike", (left, self._sum(depth)))
        return None

    def _sum(self, depth: int) -> Node:
        found = self._product(depth)
        while (sign := self._sign("+", "-")) is not None:
            found = PredicateOperation(sign, (found, self._product(depth)))
        return found

    def _product(self, depth: int) -> Node:
        found = self._signed(depth)
        while (sign := self._sign("*", "/")) is not None:
            found = PredicateOperation(sign, (found, self._signed(depth)))
        return found

    def _signed(self, depth: int) -> Node:
        sign = self._sign("+", "-")
        if sign is None:
            return self._value(depth)
        if depth > _MOST_DEPTH:
            raise self._wrong("it is nested too deeply")
        found = self._signed(depth + 1)
        if sign == "+":
            return found
        if isinstance(found, LiteralValue) and found.kind == "number" and found.text[0] != "-":
            return LiteralValue("number", f"-{found.text}")
        return PredicateOperation("-", (LiteralValue("number", "0"), found))

    def _value(self, depth: int) -> Node:
        kind, text = self._next()
        if kind in {"text", "number"}:
            return LiteralValue(kind, text)
        if kind == "keyword":
            return self._of_keyword(text, depth)
        if (kind, text) == ("sign", "("):
            found = self.disjunction(depth + 1)
            self._expect(")")
            return found
        if kind in {"word", "quoted"}:
            return self._named(kind, text, depth)
        raise self._wrong(f"{cut(text)!r} stands where a column or a value is expected")

    def _of_keyword(self, word: str, depth: int) -> Node:
        if word in {"true", "false"}:
            return LiteralValue("boolean", word)
        if word == "null":
            return LiteralValue("null", word)
        if word == "case":
            return self._case(depth + 1)
        if word in {"cast", "try_cast"}:
            return self._cast(depth + 1)
        raise self._wrong(f"{word.upper()} stands where a column or a value is expected")

    def _named(self, kind: str, text: str, depth: int) -> Node:
        """Parse a column, a function, or a date or time with its word."""
        following = self._peek()
        if kind == "word" and text.lower() in {"date", "timestamp"} and following[0] == "text":
            return LiteralValue(text.lower(), self._next()[1])
        if kind == "word" and following == ("sign", "("):
            return self._function(text.lower(), depth)
        parts = [text]
        while self._sign(".") is not None:
            kind, text = self._next()
            if kind not in {"word", "quoted", "keyword"}:
                raise self._wrong(f"{cut(text)!r} stands where a field is expected")
            parts.append(text)
        return ColumnName(tuple(parts))

    def _function(self, name: str, depth: int) -> Node:
        if name not in FUNCTIONS:
            near = difflib.get_close_matches(name, FUNCTIONS, n=1)
            hint = f"; did you mean {near[0]}" if near else ""
            is_changing = name in _CHANGING
            changing = ", whose value changes when a batch is read again" if is_changing else ""
            raise self._wrong(f"there is no function {cut(name)!r} here{changing}{hint}")
        self._expect("(")
        arguments = () if self._take(")") else self._list(depth)
        least, most = FUNCTIONS[name]
        if not least <= len(arguments) <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            raise self._wrong(f"{name} takes {wanted} arguments, and has {len(arguments)}")
        return PredicateOperation(name, arguments)

    def _list(self, depth: int) -> tuple[Node, ...]:
        """Parse values up to the closing parenthesis."""
        found = [self.disjunction(depth + 1)]
        while self._take(","):
            found.append(self.disjunction(depth + 1))
        self._expect(")")
        return tuple(found)

    def _case(self, depth: int) -> Node:
        of = None if self._peek() == ("keyword", "when") else self.disjunction(depth)
        found: list[Node] = []
        while self._take("when"):
            condition = self.disjunction(depth)
            self._expect("then")
            found += [condition if of is None else PredicateOperation("=", (of, condition))]
            found += [self.disjunction(depth)]
        if not found:
            raise self._wrong("WHEN is expected behind CASE")
        other = self.disjunction(depth) if self._take("else") else LiteralValue("null", "null")
        self._expect("end")
        return PredicateOperation("case", (*found, other))

    def _cast(self, depth: int) -> Node:
        self._expect("(")
        found = self.disjunction(depth)
        kind, text = self._next()
        if kind != "word" or text.lower() != "as":
            raise self._wrong("AS and a type are expected in CAST")
        kind, text = self._next()
        name = text.lower()
        if kind != "word" or name not in TYPES:
            near = difflib.get_close_matches(name, TYPES, n=1)
            hint = f"; did you mean {near[0].upper()}" if near else ""
            raise self._wrong(f"{cut(text)!r} is no type that CAST takes here{hint}")
        numbers = self._numbers() if name in {"decimal", "dec", "numeric"} else ()
        self._expect(")")
        return PredicateOperation("cast", (found,), (name, numbers))

    def _numbers(self) -> tuple[int, int]:
        """Parse the precision and the scale of a decimal."""
        found = [10, 0]
        if self._take("("):
            found[0] = self._whole_number()
            found[1] = self._whole_number() if self._take(",") else 0
            self._expect(")")
        if not (1 <= found[0] <= 38 and found[1] <= found[0]):  # noqa: PLR2004 - Spark's limit
            raise self._wrong("a DECIMAL has a precision from 1 to 38, and a scale up to that")
        return found[0], found[1]

    def _whole_number(self) -> int:
        kind, text = self._next()
        if kind != "number" or not text.isdecimal() or len(text) > 2:  # noqa: PLR2004 - as above
            raise self._wrong(f"{cut(text)!r} stands where a number is expected")
        return int(text)

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("", "")

    def _next(self) -> tuple[str, str]:
        if self._at == len(self._tokens):
            raise self._wrong("it ends too early")
        self._at += 1
        return self._tokens[self._at - 1]

    def _sign(self, *signs: str) -> str | None:
        """Consume the next token if it is one of these signs, and give it."""
        kind, text = self._peek()
        if kind != "sign" or text not in signs:
            return None
        self._at += 1
        return text

    def _take(self, text: str) -> bool:
        """Consume the next token if it is this keyword or sign; tell whether it was."""
        if self._peek() not in {("keyword", text), ("sign", text)}:
            return False
        self._at += 1
        return True

    def _expect(self, text: str) -> None:
        if not self._take(text):
            raise self._wrong(f"{text.upper()} is expected behind token {self._at}")

    def _wrong(self, reason: str) -> OptionError:
        return unusable(self._option, self._text, reason, self._hint)


def _negated(node: Node, *, is_not: bool) -> Node:
    return PredicateOperation("not", (node,)) if is_not else node
