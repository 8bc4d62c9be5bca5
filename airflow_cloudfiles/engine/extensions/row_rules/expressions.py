"""Evaluate a predicate over record batches, by SQL's three-valued logic.

The tree of a predicate (`options.predicate`) is bound to the columns of a schema: names become
columns, and operators functions of Arrow (`pyarrow.compute`), which go over a whole batch at once.
What does not fit, such as a text compared with a number, is refused then. Results are Spark's:

- NaN equals NaN, and is greater than any other number.
- A cast that fails, and a division by zero, are NULL (`TRY_CAST`, `try_divide`).
- Times without a zone, and days of times, are in UTC.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from airflow_cloudfiles.engine.extensions.row_rules.casts import arrow_kind, cast_from, is_number
from airflow_cloudfiles.engine.messages import cut, few
from airflow_cloudfiles.engine.names import CASE_INSENSITIVE, dotted
from airflow_cloudfiles.engine.options import predicate
from airflow_cloudfiles.engine.options.predicate import (
    ColumnName,
    LiteralValue,
    Node,
    PredicateOperation,
)
from airflow_cloudfiles.engine.options.row_rules import HINT

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.errors import OptionError

Datum = Any
"""An array of Arrow, or a scalar where it is the same for all rows."""
_WIDE: Final = 76
"""Digits of the decimals in which decimals of different types are compared."""
_MOST_WHOLE: Final = 2**63


@dataclass(frozen=True, slots=True)
class Expression:
    """A part of a predicate that is bound to columns.

    Attributes:
        kind: Its type.
        compute: Its values for the rows of a batch.
        literal: The literal that it is, if it is one.
        name: The column that it is, for errors.
    """

    kind: pa.DataType
    compute: Callable[[pa.RecordBatch], Datum]
    literal: LiteralValue | None = None
    name: str = ""

    @property
    def shown(self) -> str:
        """What it is, for errors."""
        if self.literal is not None:
            return cut(self.literal.text)
        return f"{self.name or 'an expression'} ({self.kind})"


class RowPredicate:
    """A predicate over the columns of rows.

    Args:
        option: Its option, for errors.
        text: The predicate.
        schema: The columns.

    Raises:
        OptionError: It names a column that is not there, or compares what is not comparable.
    """

    def __init__(self, option: str, text: str, schema: pa.Schema) -> None:
        self._expression = _Binder(option, text, schema).condition()
        self._expression.compute(pa.RecordBatch.from_pylist([], schema))

    def holds(self, rows: pa.RecordBatch) -> pa.Array:
        """Tell for each row whether the predicate is true; NULL is not."""
        found = pc.fill_null(self._expression.compute(rows), False)
        return pa.repeat(found, len(rows)) if isinstance(found, pa.Scalar) else found


class _Binder:
    """Binds the tree of a predicate to the columns of a schema."""

    def __init__(self, option: str, text: str, schema: pa.Schema) -> None:
        self._option = option
        self._text = text
        self._schema = schema

    def condition(self) -> Expression:
        """Bind the whole predicate."""
        found = self._bind(predicate.parse(self._option, self._text, hint=HINT))
        if not pa.types.is_boolean(found.kind) and not pa.types.is_null(found.kind):
            raise self._wrong(f"it is no condition, but {found.shown}")
        return _to(found, pa.bool_())

    def _bind(self, node: Node) -> Expression:
        if isinstance(node, ColumnName):
            return self._column(node)
        if isinstance(node, LiteralValue):
            return self._literal(node)
        return self._operation(node)

    # Columns and literals -------------------------------------------------------------------

    def _column(self, node: ColumnName) -> Expression:
        first, *inside = node.parts
        field = self._field(self._schema, first, node)
        path: list[str] = []
        kind = field.type
        for part in inside:
            if not pa.types.is_struct(kind):
                raise self._wrong(
                    f"{node.text} is no column: {field.name} is a {kind}, and no struct"
                )
            found = self._field(kind, part, node)
            path.append(found.name)
            kind = found.type
        place = self._schema.get_field_index(field.name)

        def compute(rows: pa.RecordBatch) -> Datum:
            column = rows.column(place)
            return pc.struct_field(column, path) if path else column

        return Expression(kind, compute, name=dotted((field.name, *path)))

    def _field(self, fields: Any, name: str, of: ColumnName) -> pa.Field:
        found = [each for each in fields if CASE_INSENSITIVE.same(each.name, name)]
        if found:
            return found[0]
        near = difflib.get_close_matches(name, [each.name for each in fields], n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]}" if near else ""
        known = few([each.name for each in fields])
        raise self._wrong(f"there is no column {cut(of.text)!r}{hint}. The columns are {known}")

    def _literal(self, node: LiteralValue) -> Expression:
        value = _scalar(node)
        if value is None:
            raise self._wrong(f"{cut(node.text)!r} is no {node.kind}")
        return Expression(value.type, lambda _: value, node)

    # Operators ------------------------------------------------------------------------------

    def _operation(self, node: PredicateOperation) -> Expression:
        if node.word == "cast":
            return self._cast(node)
        given = [self._bind(each) for each in node.arguments]
        for words, bound in (
            (predicate.COMPARISONS, self._compared),
            (_LOGIC.keys(), self._combined),
            (_ARITHMETIC.keys(), self._arithmetic),
            (_PATTERNS, self._matched),
            (_CHOICES, self._chosen),
        ):
            if node.word in words:
                found: Expression = bound(node.word, *given)
                return found
        return self._function(node.word, given)

    def _combined(self, word: str, *given: Expression) -> Expression:
        return _of(pa.bool_(), _LOGIC[word], *map(self._boolean, given))

    def _chosen(self, word: str, *given: Expression) -> Expression:
        """Bind what chooses among values."""
        if word == "in":
            found = [self._compared("=", given[0], each) for each in given[1:]]
            return reduce(partial(self._combined, "or"), found)
        if word == "nullif":
            same = self._compared("=", *given)
            return _of(given[0].kind, _unless, given[0], same)
        return self._case(given) if word in {"case", "if"} else self._coalesced(given)

    def _cast(self, node: PredicateOperation) -> Expression:
        of = self._bind(node.arguments[0])
        kind = arrow_kind(*node.kind)
        cast = cast_from(of.kind, kind)
        if cast is None:
            raise self._wrong(f"{of.shown} cannot be cast to {node.kind[0].upper()}")
        return _of(kind, lambda values: _applied(cast, values), of)

    def _compared(self, sign: str, left: Expression, right: Expression) -> Expression:
        one, other = self._comparable(left, right)
        floats = pa.types.is_floating(one.kind)
        compute = _FLOATS[sign] if floats else _SIGNS[sign]
        return _of(pa.bool_(), compute, one, other)

    def _comparable(self, left: Expression, right: Expression) -> tuple[Expression, Expression]:
        """Bring two expressions to one type."""
        one, other = left.kind, right.kind
        if pa.types.is_null(one) or pa.types.is_null(other):
            kind = other if pa.types.is_null(one) else one
            return _to(left, kind), _to(right, kind)
        if one == other and _is_ordered(one):
            return left, right
        if is_number(one) and is_number(other):
            return _as_numbers(left, right)
        if pa.types.is_temporal(one) and pa.types.is_temporal(other):
            kind = (
                pa.timestamp("us", "UTC")
                if _has_zone(one) or _has_zone(other)
                else (pa.timestamp("us"))
            )
            return _to(left, kind), _to(right, kind)
        for text, timed in ((left, right), (right, left)):
            if (
                text.literal is not None
                and pa.types.is_string(text.kind)
                and (pa.types.is_temporal(timed.kind))
            ):
                found = self._timed(text.literal, timed.kind)
                return (found, right) if text is left else (left, found)
        raise self._wrong(
            f"{left.shown} and {right.shown} are not compared, as they have other types. Cast one "
            "of them, such as CAST(amount AS DOUBLE)"
        )

    def _timed(self, literal: LiteralValue, kind: pa.DataType) -> Expression:
        cast = cast_from(pa.string(), kind)
        assert cast is not None  # noqa: S101 - texts are cast to all of them
        value = cast(pa.array([literal.text], pa.string()))[0]
        if not value.is_valid:
            raise self._wrong(
                f"{cut(literal.text)!r} is no {'date' if kind == pa.date32() else 'time'}"
            )
        return Expression(kind, lambda _: value, literal)

    def _boolean(self, of: Expression) -> Expression:
        if pa.types.is_null(of.kind):
            return _to(of, pa.bool_())
        if not pa.types.is_boolean(of.kind):
            raise self._wrong(f"{of.shown} is no condition")
        return of

    def _arithmetic(self, sign: str, left: Expression, right: Expression) -> Expression:
        for each in (left, right):
            if not is_number(each.kind):
                raise self._wrong(
                    f"{each.shown} is no number. Cast it, such as CAST(amount AS DOUBLE)"
                )
        both_whole = pa.types.is_integer(left.kind) and pa.types.is_integer(right.kind)
        kind = pa.int64() if both_whole and sign != "/" else pa.float64()
        one, other = _to(left, kind), _to(right, kind)
        return _of(kind, _ARITHMETIC[sign], one, other)

    def _matched(
        self, word: str, of: Expression, pattern: Expression, escape: Expression | None = None
    ) -> Expression:
        for each in (of, pattern):
            if not pa.types.is_string(each.kind):
                raise self._wrong(f"{each.shown} is no text")
        if pattern.literal is None or (escape is not None and escape.literal is None):
            raise self._wrong("a pattern is a text in quotes")
        text = pattern.literal.text
        if word in {"rlike", "regexp_like"}:
            regex = text
        else:
            mark = "\\" if escape is None or escape.literal is None else escape.literal.text
            regex = self._like(text, mark)
        options = pc.MatchSubstringOptions(regex, ignore_case=word == "ilike")
        try:
            pc.match_substring_regex(pa.array([""]), options=options)
        except pa.ArrowInvalid as error:
            reason = f"{cut(text)!r} is no pattern here ({cut(str(error), 200)})"
            raise self._wrong(reason) from error
        return _of(pa.bool_(), lambda values: pc.match_substring_regex(values, options=options), of)

    def _like(self, pattern: str, mark: str) -> str:
        """Write a pattern of LIKE as a regular expression."""
        if len(mark) != 1:
            raise self._wrong("ESCAPE takes one character")
        found, at = [], 0
        while at < len(pattern):
            each = pattern[at]
            at += 1
            if each == mark:
                if at == len(pattern) or pattern[at] not in {"%", "_", mark}:
                    raise self._wrong(
                        f"in {cut(pattern)!r}, {mark} stands before %, _ or itself only"
                    )
                found.append(_quoted(pattern[at]))
                at += 1
            else:
                found.append({"%": ".*", "_": "."}.get(each) or _quoted(each))
        return f"(?s)\\A{''.join(found)}\\z"

    def _case(self, given: Sequence[Expression]) -> Expression:
        conditions = [self._boolean(each) for each in given[:-1:2]]
        values = self._alike([*given[1::2], given[-1]] if len(given) % 2 else given)
        found = values[-1]
        for condition, value in zip(reversed(conditions), reversed(values[:-1]), strict=True):
            found = _of(
                value.kind,
                lambda a, b, c: pc.if_else(pc.fill_null(a, False), b, c),
                condition,
                value,
                found,
            )
        return found

    def _coalesced(self, given: Sequence[Expression]) -> Expression:
        values = self._alike(given)
        return _of(values[0].kind, pc.coalesce, *values)

    def _alike(self, given: Sequence[Expression]) -> list[Expression]:
        """Bring several expressions to one type."""
        lead = next((each for each in given if not pa.types.is_null(each.kind)), given[0])
        for each in given:
            one, _ = self._comparable(lead, each)
            lead = one if pa.types.is_null(lead.kind) or one.kind != lead.kind else lead
        return [self._comparable(each, lead)[0] for each in given]

    def _function(self, word: str, given: Sequence[Expression]) -> Expression:
        made = _FUNCTIONS[word]
        for each in given:
            if not (pa.types.is_null(each.kind) or made.takes(each.kind)):
                raise self._wrong(f"{word} takes {made.what}, and {each.shown} is none")
        if word == "concat":
            return _of(pa.string(), made.compute, *given, Expression(pa.string(), lambda _: ""))
        return _of(given[0].kind if made.kind is None else made.kind, made.compute, *given)

    def _wrong(self, reason: str) -> OptionError:
        return predicate.unusable(self._option, self._text, reason, HINT)


def _quoted(character: str) -> str:
    is_plain = character.isalnum() or character == "_" or ord(character) > 127  # noqa: PLR2004
    return character if is_plain else f"\\x{{{ord(character):x}}}"


def _scalar(node: LiteralValue) -> pa.Scalar | None:
    """Give the value of a literal; `None` where it has none."""
    text = node.text
    if node.kind == "null":
        return pa.scalar(None, pa.null())
    if node.kind == "boolean":
        return pa.scalar(text == "true")
    if node.kind == "text":
        return pa.scalar(text, pa.string())
    if node.kind == "number":
        return _number(text)
    kind = pa.date32() if node.kind == "date" else pa.timestamp("us", "UTC")
    cast = cast_from(pa.string(), kind)
    assert cast is not None  # noqa: S101 - texts are cast to all of them
    found = cast(pa.array([text], pa.string()))[0]
    return found if found.is_valid else None


def _number(text: str) -> pa.Scalar | None:
    """Give the value of a number: a BIGINT, a DECIMAL or, with an exponent, a DOUBLE."""
    if "e" in text.lower():
        return pa.scalar(float(text), pa.float64())
    whole, _, fraction = text.lstrip("-").partition(".")
    if not fraction and -_MOST_WHOLE <= int(whole or "0") < _MOST_WHOLE:
        return pa.scalar(int(text.partition(".")[0] or "0"), pa.int64())
    digits = max(len(whole.lstrip("0")) + len(fraction), 1)
    if digits > 38:  # noqa: PLR2004 - of Spark's decimals
        return None
    kind = pa.decimal128(max(digits, len(fraction)), len(fraction))
    return pa.array([text.strip(".") if text[-1] != "." else text[:-1]], pa.string()).cast(kind)[0]


def _of(kind: pa.DataType, compute: Callable[..., Datum], *given: Expression) -> Expression:
    """Apply a function of values to expressions."""
    return Expression(kind, lambda rows: compute(*(each.compute(rows) for each in given)))


def _applied(cast: Callable[[pa.Array], pa.Array], values: Datum) -> Datum:
    """Cast an array, or a scalar."""
    return cast(pa.repeat(values, 1))[0] if isinstance(values, pa.Scalar) else cast(values)


def _to(of: Expression, kind: pa.DataType) -> Expression:
    """Convert an expression to a type that has all of its values."""
    if of.kind == kind:
        return of
    if pa.types.is_date(of.kind):
        compute: Callable[..., Datum] = lambda v: v.cast(pa.timestamp("us")).cast(kind)  # noqa: E731
    elif pa.types.is_floating(kind):
        compute = lambda v: v.cast(kind, safe=False)  # noqa: E731
    else:
        compute = lambda v: v.cast(kind)  # noqa: E731
    if of.literal is None:
        return Expression(kind, _of(kind, compute, of).compute, name=of.name)
    value = compute(of.compute(None))  # a literal looks at no row
    return Expression(kind, lambda _: value, of.literal)


def _as_numbers(left: Expression, right: Expression) -> tuple[Expression, Expression]:
    """Bring two numbers to one type, as Spark does: a DOUBLE if one is floating."""
    if pa.types.is_floating(left.kind) or pa.types.is_floating(right.kind):
        return _to(left, pa.float64()), _to(right, pa.float64())
    if pa.types.is_integer(left.kind) and pa.types.is_integer(right.kind):
        return _to(left, pa.int64()), _to(right, pa.int64())
    scales = [each.kind.scale for each in (left, right) if pa.types.is_decimal(each.kind)]
    kind = pa.decimal256(_WIDE, max(scales))
    return _to(left, kind), _to(right, kind)


def _has_zone(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.tz is not None)


def _is_ordered(kind: pa.DataType) -> bool:
    """Tell whether values of a type are compared with each other."""
    return (
        is_number(kind)
        or pa.types.is_string(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_temporal(kind)
    )


def _same(equal: Callable[..., Datum]) -> Callable[..., Datum]:
    """Compare so that two nulls are the same."""

    def compute(one: Datum, other: Datum) -> Datum:
        both = pc.and_(pc.is_null(one), pc.is_null(other))
        return pc.or_(both, pc.fill_null(equal(one, other), False))

    return compute


def _floats_equal(one: Datum, other: Datum) -> Datum:
    return pc.or_(pc.equal(one, other), pc.and_(pc.is_nan(one), pc.is_nan(other)))


def _floats_less(one: Datum, other: Datum) -> Datum:
    """NaN is greater than any other number."""
    is_below = pc.and_(pc.is_nan(other), pc.invert(pc.is_nan(one)))
    return pc.or_(pc.less(one, other), is_below)


def _unless(value: Datum, condition: Datum) -> Datum:
    return pc.if_else(pc.fill_null(condition, False), None, value)


def _divided(one: Datum, other: Datum) -> Datum:
    is_zero = pc.equal(other, 0.0)
    return pc.if_else(is_zero, pa.scalar(None, pa.float64()), pc.divide(one, other))


_SIGNS: Final[Mapping[str, Callable[..., Datum]]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
    "<=>": _same(pc.equal),
}
_FLOATS: Final[Mapping[str, Callable[..., Datum]]] = {
    "=": _floats_equal,
    "<>": lambda one, other: pc.invert(_floats_equal(one, other)),
    "<": _floats_less,
    "<=": lambda one, other: pc.invert(_floats_less(other, one)),
    ">": lambda one, other: _floats_less(other, one),
    ">=": lambda one, other: pc.invert(_floats_less(one, other)),
    "<=>": _same(_floats_equal),
}
_LOGIC: Final[Mapping[str, Callable[..., Datum]]] = {"and": pc.and_kleene, "or": pc.or_kleene}
_PATTERNS: Final = frozenset({"like", "ilike", "rlike", "regexp_like"})
_CHOICES: Final = frozenset({"in", "case", "if", "coalesce", "nvl", "ifnull", "nullif"})
_ARITHMETIC: Final[Mapping[str, Callable[..., Datum]]] = {
    "+": pc.add,
    "-": pc.subtract,
    "*": pc.multiply,
    "/": _divided,
}


@dataclass(frozen=True, slots=True)
class _Function:
    """A function of values.

    Attributes:
        what: What it takes, for errors.
        takes: Whether it takes values of a type.
        kind: The type of its values; `None`: of its argument.
        compute: Its values.
    """

    what: str
    takes: Callable[[pa.DataType], bool]
    kind: pa.DataType | None
    compute: Callable[..., Datum]


def _anything(_: pa.DataType) -> bool:
    return True


def _is_day(kind: pa.DataType) -> bool:
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind))


def _texts(compute: Callable[..., Datum], kind: pa.DataType) -> _Function:
    return _Function("texts", pa.types.is_string, kind, compute)


def _trimmed(trim: Callable[..., Datum]) -> _Function:
    return _texts(lambda values: trim(values, characters=" "), pa.string())


def _contained(compute: Callable[..., Datum]) -> _Function:
    """Test a text for a part of it, which is a literal."""

    def of(values: Datum, part: Datum) -> Datum:
        if not isinstance(part, pa.Scalar) or not part.is_valid:
            return pa.nulls(1, pa.bool_())[0]
        return compute(values, pattern=part.as_py())

    return _texts(of, pa.bool_())


def _part_of_day(compute: Callable[..., Datum]) -> _Function:
    return _Function("dates and times", _is_day, pa.int64(), compute)


_FUNCTIONS: Final[Mapping[str, _Function]] = {
    **dict.fromkeys(
        ("length", "char_length", "character_length"),
        _texts(lambda values: pc.utf8_length(values).cast(pa.int64()), pa.int64()),
    ),
    "lower": _texts(pc.utf8_lower, pa.string()),
    "upper": _texts(pc.utf8_upper, pa.string()),
    "trim": _trimmed(pc.utf8_trim),
    "ltrim": _trimmed(pc.utf8_ltrim),
    "rtrim": _trimmed(pc.utf8_rtrim),
    "concat": _texts(
        lambda *texts: pc.binary_join_element_wise(*texts, null_handling="emit_null"), pa.string()
    ),
    "startswith": _contained(pc.starts_with),
    "endswith": _contained(pc.ends_with),
    "contains": _contained(pc.match_substring),
    "abs": _Function("numbers", is_number, None, pc.abs),
    "isnan": _Function(
        "floating-point numbers",
        pa.types.is_floating,
        pa.bool_(),
        lambda values: pc.fill_null(pc.is_nan(values), False),
    ),
    **dict.fromkeys(("is null", "isnull"), _Function("values", _anything, pa.bool_(), pc.is_null)),
    "isnotnull": _Function("values", _anything, pa.bool_(), pc.is_valid),
    "not": _Function("conditions", pa.types.is_boolean, pa.bool_(), pc.invert),
    "size": _Function(
        "arrays", _is_list, pa.int64(), lambda values: pc.list_value_length(values).cast(pa.int64())
    ),
    "year": _part_of_day(pc.year),
    "month": _part_of_day(pc.month),
    **dict.fromkeys(("day", "dayofmonth"), _part_of_day(pc.day)),
}
