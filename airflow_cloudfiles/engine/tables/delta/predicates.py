"""Parse the predicate of an option, and choose rows by it.

`replaceWhere`, `mergeDeleteWhen` and `--where` take a part of SQL: comparisons of a column with a
literal, `IN`, `BETWEEN`, `IS [NOT] NULL`, `AND`, `OR`, `NOT`, parentheses. The text is read into a
tree, with each literal as a value of its column's type. Rows are chosen by that tree, and where a
library wants SQL, the tree is written as SQL anew: no text of a user gets into a statement.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.messages import cut
from airflow_cloudfiles.engine.names import CASE_INSENSITIVE
from airflow_cloudfiles.engine.options.values import parse_time

_TOKEN: Final = re.compile(
    r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<quoted>`(?:[^`]|``)+`)"
    r"|(?P<number>[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)"
    r"|(?P<sign><=|>=|<>|!=|==|=|<|>|\(|\)|,)|(?P<word>[^\W\d]\w*))"
)
_SIGNS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_SAME: Final = {"==": "=", "!=": "<>"}
_WORDS: Final = frozenset(
    {"and", "or", "not", "in", "is", "null", "between", "true", "false", "date", "timestamp"}
)
_MOST_DEPTH: Final = 50


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
    parser = _PredicateParser(option, text, schema)
    found = parser.disjunction(0)
    parser.end()
    return found


def holds(predicate: Predicate, rows: pa.RecordBatch) -> pa.Array:
    """Tell for each row whether a predicate is true: null is not."""
    return pc.fill_null(predicate.evaluate(rows), False)


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


class _PredicateParser:
    """Reads a predicate from left to right."""

    def __init__(self, option: str, text: str, schema: pa.Schema) -> None:
        self._option = option
        self._text = text
        self._columns = {CASE_INSENSITIVE.key(each.name): each for each in schema}
        self._tokens = list(self._split())
        self._at = 0

    def _split(self) -> Iterator[tuple[str, str]]:
        at = 0
        while self._text[at:].strip():
            found = _TOKEN.match(self._text, at)
            if found is None or found.end() == at:
                raise self._wrong(f"{cut(self._text[at:].strip(), 20)!r} is not understood")
            kind = str(found.lastgroup)
            text = found[kind]
            if kind in {"text", "quoted"}:
                text = text[1:-1].replace(text[0] * 2, text[0])
            is_word = kind == "word" and text.lower() in _WORDS
            yield ("keyword", text.lower()) if is_word else (kind, text)
            at = found.end()

    def disjunction(self, depth: int) -> Predicate:
        """Parse `a OR b OR c`."""
        found = self._conjunction(depth)
        while self._take("or"):
            found = CombinedPredicate("OR", found, self._conjunction(depth))
        return found

    def end(self) -> None:
        """Refuse what is left."""
        if self._at < len(self._tokens):
            raise self._wrong(f"{cut(self._tokens[self._at][1])!r} is not expected")

    def _conjunction(self, depth: int) -> Predicate:
        found = self._negation(depth)
        while self._take("and"):
            found = CombinedPredicate("AND", found, self._negation(depth))
        return found

    def _negation(self, depth: int) -> Predicate:
        if depth > _MOST_DEPTH:
            raise self._wrong("it is nested too deeply")
        if self._take("not"):
            return Negation(self._negation(depth + 1))
        if self._take("("):
            found = self.disjunction(depth + 1)
            self._expect(")")
            return found
        return self._comparison()

    def _comparison(self) -> Predicate:
        column = self._column()
        if self._take("is"):
            is_not = self._take("not")
            self._expect("null")
            return Negation(IsNull(column.name)) if is_not else IsNull(column.name)
        is_not = self._take("not")
        if self._take("in"):
            found = self._one_of(column)
        elif self._take("between"):
            low = Comparison(column.name, ">=", self._literal(column))
            self._expect("and")
            found = CombinedPredicate(
                "AND", low, Comparison(column.name, "<=", self._literal(column))
            )
        else:
            kind, text = self._next()
            sign = _SAME.get(text, text)
            if is_not or kind != "sign" or sign not in _SIGNS:
                raise self._wrong(f"{cut(text)!r} does not compare {column.name} with a literal")
            found = Comparison(column.name, sign, self._literal(column))
        return Negation(found) if is_not else found

    def _one_of(self, column: pa.Field) -> Predicate:
        self._expect("(")
        found: Predicate = Comparison(column.name, "=", self._literal(column))
        while self._take(","):
            found = CombinedPredicate(
                "OR", found, Comparison(column.name, "=", self._literal(column))
            )
        self._expect(")")
        return found

    def _column(self) -> pa.Field:
        kind, text = self._next()
        column = self._columns.get(CASE_INSENSITIVE.key(text))
        if kind not in {"word", "quoted"}:
            raise self._wrong(f"{cut(text)!r} stands where a column is expected")
        if column is None:
            raise self._wrong(f"there is no column {cut(text)!r}")
        return column

    def _literal(self, column: pa.Field) -> pa.Scalar:
        kind, text = self._next()
        if kind == "keyword" and text in {"date", "timestamp"}:
            kind, text = self._next()
        found = None
        if kind in {"text", "number"} or text in {"true", "false"}:
            found = literal(text, column.type, is_text=kind == "text")
        if found is None:
            raise self._wrong(
                f"{cut(text)!r} is no literal of the type of {column.name} ({column.type})"
            )
        return found

    def _next(self) -> tuple[str, str]:
        if self._at == len(self._tokens):
            raise self._wrong("it ends too early")
        self._at += 1
        return self._tokens[self._at - 1]

    def _take(self, text: str) -> bool:
        """Consume the next token if it is this keyword or sign; tell whether it was."""
        is_next = self._tokens[self._at : self._at + 1]
        if not is_next or is_next[0] not in {("keyword", text), ("sign", text)}:
            return False
        self._at += 1
        return True

    def _expect(self, text: str) -> None:
        if not self._take(text):
            raise self._wrong(f"{text.upper()} is expected behind token {self._at}")

    def _wrong(self, reason: str) -> OptionError:
        return OptionError(
            f"{self._option} {cut(self._text)!r} cannot be used: {reason}. Compare columns with "
            "literals (=, <>, <, <=, >, >=, IN, BETWEEN, IS NULL), joined by AND, OR and NOT."
        )
