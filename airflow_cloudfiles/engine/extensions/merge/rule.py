"""Describe how a batch is merged into a table.

By keys: a row of the batch updates, or deletes, the row of the table that has the same keys; a row
with new keys is inserted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from airflow_cloudfiles.engine.errors import OptionError, SinkError
from airflow_cloudfiles.engine.formats.columnar.types import holds_variant
from airflow_cloudfiles.engine.messages import few
from airflow_cloudfiles.engine.names import CASE_INSENSITIVE, quoted
from airflow_cloudfiles.engine.tables.delta.predicates import Predicate, parse_predicate

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.options.sink import TableOptions

WhenMatched = Literal["update", "delete", "ignore"]
WhenNotMatched = Literal["insert", "ignore"]
NullKeys = Literal["fail", "insert"]


@dataclass(frozen=True, slots=True)
class MergeRule:
    """How a batch is merged.

    Attributes:
        keys: Columns that identify a row.
        order_by: Column whose greatest value is the newest state of a row: of several rows of a
            batch with the same keys it chooses one, and an older row changes nothing in the table.
            `None`: a batch with two rows of the same keys is refused.
        delete_when: Predicate on the rows of the batch; those for which it is true delete.
        when_matched: What the other rows do to a row with the same keys.
        when_not_matched: What they do where there is none.
        null_keys: Whether a row with a null among its keys is refused, or inserted: it never
            matches.
    """

    keys: tuple[str, ...]
    order_by: str | None = None
    delete_when: str | None = None
    when_matched: WhenMatched = "update"
    when_not_matched: WhenNotMatched = "insert"
    null_keys: NullKeys = "fail"

    @property
    def writes_some(self) -> bool:
        """Whether rows may get into the table."""
        return self.when_matched == "update" or self.when_not_matched == "insert"

    @property
    def writes_all(self) -> bool:
        """Whether each row that does not delete is to be in the table, so that it must fit."""
        return (self.when_matched, self.when_not_matched) == ("update", "insert")

    @classmethod
    def of(cls, options: TableOptions) -> MergeRule | None:
        """Read the rule from a sink's options; `None` where rows are appended."""
        if not options.merge_keys:
            return None
        return cls(
            options.merge_keys,
            options.merge_order_by,
            options.merge_delete_when,
            options.merge_when_matched,
            options.merge_when_not_matched,
            options.merge_null_keys,
        )

    def bound_to(self, schema: pa.Schema, target: str) -> BoundRule:
        """Bind the rule to rows of a schema.

        Raises:
            OptionError: A column is missing, or of a type that is not compared; or the predicate
                cannot be used.
            SinkError: The rows have VARIANTs.
        """
        variants = [each.name for each in schema if holds_variant(each.type)]
        if variants:
            raise SinkError(
                f"{few(variants)} has VARIANTs, which are not merged into a table in this version. "
                f"Append to {target}, or leave the column out."
            )
        keys = tuple(_column(schema, "mergeKeys", name) for name in self.keys)
        if len(set(keys)) < len(keys):
            raise OptionError(f"mergeKeys names a column twice: {few(keys)}. Name each once.")
        order = None if self.order_by is None else _column(schema, "mergeOrderBy", self.order_by)
        delete = self.delete_when
        return BoundRule(
            self,
            keys,
            order,
            None if delete is None else parse_predicate("mergeDeleteWhen", delete, schema),
        )


@dataclass(frozen=True, slots=True)
class BoundRule:
    """A rule whose columns are known.

    Attributes:
        rule: The rule.
        keys: Its keys, as the schema spells them.
        order_by: As the schema spells it.
        delete_when: As a tree.
    """

    rule: MergeRule
    keys: tuple[str, ...]
    order_by: str | None
    delete_when: Predicate | None


def _column(schema: pa.Schema, option: str, name: str) -> str:
    """Find a column of the schema, whose values must have one order everywhere."""
    wanted = CASE_INSENSITIVE.key(name)
    found = next((each for each in schema if CASE_INSENSITIVE.key(each.name) == wanted), None)
    if found is None:
        raise OptionError(
            f"{option} names {quoted(name)}, which is no column of the batch; it has "
            f"{few(schema.names)}. Name one of them."
        )
    if not any(is_kind(found.type) for is_kind in _COMPARED):
        raise OptionError(
            f"{option} names {quoted(name)}, which is of the type {found.type}. Name a column of "
            "whole numbers, decimals, strings, dates, timestamps or booleans."
        )
    return str(found.name)


_COMPARED = (
    pa.types.is_signed_integer,
    pa.types.is_decimal,
    pa.types.is_string,
    pa.types.is_date,
    pa.types.is_timestamp,
    pa.types.is_boolean,
)
"""Types whose values Arrow, DataFusion and Spark compare alike: floats (NaN) are not among them."""
