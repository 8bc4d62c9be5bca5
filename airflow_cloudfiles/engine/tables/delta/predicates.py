"""Parse the predicate of an option, and choose rows by it.

`replaceWhere`, `mergeDeleteWhen` and `--where` take a part of SQL: comparisons of a column with a
literal, `IN`, `BETWEEN`, `IS [NOT] NULL`, `AND`, `OR`, `NOT`, parentheses. The text is read into a
tree (`options.predicate`), with each literal as a value of its column's type. Rows are chosen by
that tree, and where a library wants SQL, the tree is written as SQL anew: no text of a user gets
into a statement.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.messages import cut
from airflow_cloudfiles.engine.names import CASE_INSENSITIVE
from airflow_cloudfiles.engine.options import predicate
from airflow_cloudfiles.engine.options.values import parse_time

_SIGNS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_HINT: Final = (
    "Compare columns with literals (=, <>, <, <=, >, >=, IN, BETWEEN, IS NULL), joined by AND, OR "
    "and NOT."
)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A column compared with a literal of its type."""

    column: str
    sign: str
    value: pa.Scalar

    def evaluate(self, rows: pa.RecordBatch) -> pa.Array:
        """Compute true, false or null for each row."""
        return _SIGNS[self.sign](rows.column(self.column), self.value)

    def to_sql(self, alias: str = "") -> str:
        """Write the predicate as DataFusion has it."""
        return f"{sql_name(self.column, alias)} {self.sign} {sql_literal(self.value)}"


@dataclass(frozen=True, slots=True)
class IsNull:
    """Whether a column is null."""

    column: str

    def evaluate(self, rows: pa.RecordBatch) -> pa.Array:
        """Compute true or false for each row."""
        return pc.is_null(rows.column(self.column))

    def to_sql(self, alias: str = "") -> str:
        """Write the predicate as DataFusion has it."""
        return f"{sql_name(self.column, alias)} IS NULL"


@dataclass(frozen=True, slots=True)
class Negation:
    """The opposite; of null it is null."""

    of: Predicate

    def evaluate(self, rows: pa.RecordBatch) -> pa.Array:
        """Compute true, false or null for each row."""
        return pc.invert(self.of.evaluate(rows))

    def to_sql(self, alias: str = "") -> str:
        """Write the predicate as DataFusion has it."""
        return f"NOT ({self.of.to_sql(alias)})"


@dataclass(frozen=True, slots=True)
class CombinedPredicate:
    """Two predicates, both or at least one of which must hold."""

    word: str
    left: Predicate
    right: Predicate

    def evaluate(self, rows: pa.RecordBatch) -> pa.Array:
        """Compute true, false or null for each row, by SQL's three-valued logic."""
        combine = pc.and_kleene if self.word == "AND" else pc.or_kleene
        return combine(self.left.evaluate(rows), self.right.evaluate(rows))

    def to_sql(self, alias: str = "") -> str:
        """Write the predicate as DataFusion has it."""
        return f"({self.left.to_sql(alias)} {self.word} {self.right.to_sql(alias)})"


Predicate = Comparison | IsNull | Negation | CombinedPredicate


def parse_predicate(option: str, text: str, schema: pa.Schema) -> Predicate:
    """Read a predicate over the columns of a schema.

    Args:
        option: Its name, for errors.
        text: The predicate.
        schema: The columns, whose names are compared without case.

    Raises:
        OptionError: It is not a predicate in the supported part of SQL, names a column that
            does not exist, or compares one with what is not a value of its type.
    """
    node = predicate.parse(option, text, hint=_HINT, has_escapes=False)
    return _PredicateBuilder(option, text, schema).bind(node)


def holds(condition: Predicate, rows: pa.RecordBatch) -> pa.Array:
    """Tell for each row whether a predicate is true: null is not."""
    return pc.fill_null(condition.evaluate(rows), False)


def sql_name(column: str, alias: str = "") -> str:
    """Write a column as DataFusion has it."""
    quoted = '"' + column.replace('"', '""') + '"'
    return f"{alias}.{quoted}" if alias else quoted


def sql_literal(value: pa.Scalar) -> str:
    """Write a value as DataFusion has it.

    Raises:
        ValueError: Values of its type have no literal here.
    """
    kind = value.type
    if pa.types.is_boolean(kind):
        return "true" if value.as_py() else "false"
    if pa.types.is_integer(kind):
        return str(value.as_py())
    if pa.types.is_decimal(kind):  # with all digits: DataFusion casts no 0E-8
        return f"CAST('{value.as_py():f}' AS DECIMAL({kind.precision}, {kind.scale}))"
    text = str(value.cast(pa.string()).as_py()).replace("'", "''")
    if pa.types.is_string(kind):
        return f"'{text}'"
    if pa.types.is_date(kind):
        return f"CAST('{text}' AS DATE)"
    if pa.types.is_timestamp(kind):
        zone = "None" if kind.tz is None else 'Some("UTC")'
        return f"arrow_cast('{text}', 'Timestamp(Microsecond, {zone})')"
    raise ValueError(kind)


def literal(text: str, kind: pa.DataType, *, is_text: bool) -> pa.Scalar | None:
    """Convert a literal to a value of a column's type; return `None` if it is not one.

    Floating-point numbers have no literals: Arrow, Spark and DataFusion differ about NaN.

    Args:
        text: The literal, without quotes.
        kind: The type.
        is_text: Whether it was in quotes.
    """
    try:
        return _literal(text, kind, is_text=is_text)
    except (ValueError, OverflowError, InvalidOperation, pa.ArrowException):
        return None


def _literal(text: str, kind: pa.DataType, *, is_text: bool) -> pa.Scalar | None:
    if pa.types.is_decimal(kind):
        return pa.scalar(Decimal(text), kind)
    if is_text:
        return _of_text(text, kind)
    if pa.types.is_boolean(kind) and text.lower() in {"true", "false"}:
        return pa.scalar(text.lower() == "true", kind)
    return pa.scalar(int(text), kind) if pa.types.is_integer(kind) else None


def _of_text(text: str, kind: pa.DataType) -> pa.Scalar | None:
    """Convert a literal that was in quotes."""
    if pa.types.is_string(kind):
        return pa.scalar(text, kind)
    if pa.types.is_date32(kind):
        return pa.scalar(date.fromisoformat(text), kind)
    time_us = parse_time(text) if pa.types.is_timestamp(kind) else None
    return None if time_us is None else pa.scalar(time_us, kind)


class _PredicateBuilder:
    """Converts the tree of a predicate to what is evaluated, with the columns of a schema."""

    def __init__(self, option: str, text: str, schema: pa.Schema) -> None:
        self._option = option
        self._text = text
        self._columns = {CASE_INSENSITIVE.key(each.name): each for each in schema}

    def bind(self, node: predicate.Node) -> Predicate:
        """Convert a condition."""
        if isinstance(node, predicate.PredicateOperation):
            word, given = node.word, node.arguments
            if word in {"and", "or"}:
                left, right = map(self.bind, given)
                return CombinedPredicate(word.upper(), left, right)
            if word == "not":
                return Negation(self.bind(given[0]))
            if word == "is null":
                return IsNull(self._column(given[0]).name)
            if word in _SIGNS:
                column = self._column(given[0])
                return Comparison(column.name, word, self._literal(column, given[1]))
            if word == "in":
                return self._one_of(self._column(given[0]), given[1:])
        if isinstance(node, predicate.ColumnName):
            column = self._column(node)
            raise self._wrong(f"{cut(column.name)!r} is compared with nothing: it ends too early")
        raise self._wrong(f"{_shown(node)} is no comparison of a column with a literal")

    def _one_of(self, column: pa.Field, values: Sequence[predicate.Node]) -> Predicate:
        first, *others = (Comparison(column.name, "=", self._literal(column, v)) for v in values)
        found: Predicate = first
        for each in others:
            found = CombinedPredicate("OR", found, each)
        return found

    def _column(self, node: predicate.Node) -> pa.Field:
        if not isinstance(node, predicate.ColumnName):
            raise self._wrong(f"{_shown(node)} stands where a column is expected")
        column = (
            self._columns.get(CASE_INSENSITIVE.key(node.text)) if len(node.parts) == 1 else None
        )
        if column is None:
            raise self._wrong(f"there is no column {cut(node.text)!r}")
        return column

    def _literal(self, column: pa.Field, node: predicate.Node) -> pa.Scalar:
        found = None
        if isinstance(node, predicate.LiteralValue) and node.kind != "null":
            is_text = node.kind not in {"number", "boolean"}
            found = literal(node.text, column.type, is_text=is_text)
        if found is None:
            raise self._wrong(
                f"{_shown(node)} is no literal of the type of {column.name} ({column.type})"
            )
        return found

    def _wrong(self, reason: str) -> OptionError:
        return predicate.unusable(self._option, self._text, reason, _HINT)


def _shown(node: predicate.Node) -> str:
    text = node.word if isinstance(node, predicate.PredicateOperation) else node.text
    return repr(cut(text))
