"""The fast path, the explaining path and the source text agree on any records whatever."""

from __future__ import annotations

import json
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from airflow_cloudfiles.engine.formats.json import tokens as json_lines
from airflow_cloudfiles.engine.formats.json.reader import JsonReader, LinePiece
from airflow_cloudfiles.engine.formats.json.shape import UnknownFieldColumns
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from tests.support.formats.numbers_law import gives_back, is_number
from tests.support.laws import examples

LEAVES: dict[str, DataType] = {
    "string": StringType(),
    "long": LongType(),
    "int": IntegerType(),
    "short": ShortType(),
    "byte": ByteType(),
    "double": DoubleType(),
    "float": FloatType(),
    "boolean": BooleanType(),
    "decimal": DecimalType(7, 3),
    "wide": DecimalType(38, 10),
    "date": DateType(),
    "timestamp": TimestampType(),
    "local": TimestampNTZType(),
    "binary": BinaryType(),
}
NESTED: dict[str, DataType] = {
    "strings": ArrayType(StringType()),
    "longs": ArrayType(LongType()),
    "matrix": ArrayType(ArrayType(IntegerType())),
    "tags": MapType(StringType(), StringType()),
    "weights": MapType(StringType(), DoubleType()),
    "user": StructType(
        [
            StructField("name", StringType()),
            StructField("age", IntegerType()),
            StructField("since", StructType([StructField("day", DateType())])),
        ]
    ),
    "items": ArrayType(
        StructType([StructField("sku", StringType()), StructField("count", LongType())])
    ),
    'odd "name"': LongType(),
    "": StringType(),
}
SCHEMA = StructType([StructField(name, kind) for name, kind in (LEAVES | NESTED).items()])
STRINGS = StructType([StructField(name, StringType()) for name in LEAVES | NESTED])

TYPICAL = [
    "null", "true", "false", "0", "-0", "1", "-1", "127", "128", "-129", "32768", "2147483647",
    "2147483648", "9223372036854775807", "9223372036854775808", "1" * 40, "1.0", "1.10", "-1.5e3",
    "1E2", "1e400", "1e-400", "0.1234567890123", "12345.678", "9999.9995", '""', '"x"', '"1"',
    '"NaN"', '"-Infinity"', '"true"', '"1,234.5"', '"2024-02-29"', '"2024-2-9"', '"2023-02-29"',
    '"2024-01-31T12:30:59Z"', '"2024-01-31T12:30:59.123456Z"', '"2024-01-31 12:30:59"',
    '"2024-01-31T12:30:59.1+05:30"', '"2024-01-31T25:00:00Z"', '"2024-01-31T12:30Z"',
    '"2024-01-31T00:00:00Z"', '"0001-01-01"', '"aGVsbG8="', '"aGVsbG8"', '"a\\nb"', '"\\u00e9\\/"',
    '"\\ud83d\\ude00"', '"\\ud800"', '"é😀"', '"a\\"b: c, d"', "{}", "[]", '{"a": 1}', "[1 , 2]",
    '[{"b":{}}]',
]  # fmt: skip
KEYS = ["a", "b", "name", "age", "sku", "count", "day", "since", "Name", "é", 'q"', "\ud800"]


def _objects(
    keys: st.SearchStrategy[str], values: st.SearchStrategy[str]
) -> st.SearchStrategy[str]:
    """Objects as text: any spacing, any order, keys repeated now and then."""
    spacing = st.sampled_from([(",", ":"), (", ", ": "), (" ,", " : ")])
    pairs = st.lists(st.tuples(keys, values), max_size=5)
    return st.builds(
        lambda found, space: (
            "{" + space[0].join(json.dumps(k) + space[1] + v for k, v in found) + "}"
        ),
        pairs,
        spacing,
    )


def _arrays(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(values, max_size=4).map(lambda found: "[" + ",".join(found) + "]")


SCALARS = (
    st.sampled_from(TYPICAL)
    | st.integers(-(2**70), 2**70).map(str)
    | st.floats(allow_nan=False, allow_infinity=False).map(json.dumps)
    | st.text().map(json.dumps)
    | st.text()
    .map(lambda text: json.dumps(text, ensure_ascii=False))
    .filter(lambda text: text.isprintable())
)
ANY = st.recursive(
    SCALARS, lambda inner: _objects(st.sampled_from(KEYS), inner) | _arrays(inner), max_leaves=6
)


def _fitting(kind: DataType) -> st.SearchStrategy[str]:
    """Texts that have the shape of a type; most leaves fit."""
    if isinstance(kind, ArrayType):
        return _arrays(_fitting(kind.elementType) | SCALARS)
    if isinstance(kind, MapType):
        return _objects(st.sampled_from(KEYS), _fitting(kind.valueType) | SCALARS)
    if isinstance(kind, StructType):
        fields = [
            st.tuples(st.just(each.name), _fitting(each.dataType) | SCALARS) for each in kind.fields
        ]
        pairs = st.lists(st.one_of(*fields) | st.tuples(st.sampled_from(KEYS), SCALARS), max_size=4)
        return pairs.map(
            lambda found: "{" + ",".join(json.dumps(k) + ":" + v for k, v in found) + "}"
        )
    if isinstance(kind, LongType | IntegerType | ShortType | ByteType):
        return st.integers(-128, 127).map(str)
    if isinstance(kind, DoubleType | FloatType | DecimalType):
        return st.decimals(-999, 999, places=2).map(str)
    return SCALARS


def _pair(name: str, kind: DataType) -> st.SearchStrategy[str]:
    key = json.dumps(name)
    return (_fitting(kind) | ANY).map(lambda value: f"{key}: {value}")


RECORDS = st.lists(
    st.one_of(*[_pair(each.name, each.dataType) for each in SCHEMA.fields])
    | st.builds(
        lambda name, value: json.dumps(name) + ": " + value,
        st.sampled_from(["new", "Long", "STRING", "neu é", "\udfff", "_rescued_data"]),
        ANY,
    ),
    max_size=6,
).map(lambda pairs: ("{" + ", ".join(pairs) + "}").encode())


class RefusesEverything:
    """A decoder that takes no line, so that every record is explained."""

    def decode(self, line: bytes) -> object:
        raise msgspec.DecodeError(line)

    def decode_lines(self, chunk: bytes) -> list[object]:
        raise msgspec.DecodeError(chunk)


class LearnsNothing(UnknownFieldColumns):
    """Never gives its reader a second decoder."""

    def learn(self, unknown: set[str], spelled: dict[int, str]) -> None:
        """Leave things as they are."""


def options(**others: str) -> CloudFilesOptions:
    given = {"cloudFiles.format": "json", "cloudFiles.schemaEvolutionMode": "rescue", **others}
    return CloudFilesOptions.parse(given, path="/landing")


def read(
    lines: list[bytes], schema: StructType, *, explain: bool = False, **others: str
) -> list[dict[str, object]]:
    reader = JsonReader(schema, options(**others))
    if explain:
        reader.decoder = RefusesEverything()
        reader._unknown_fields = LearnsNothing(reader._shape)
    pieces = [LinePiece("file:///f.json", b"\n".join(lines))]
    reader.read(pieces)
    batch = reader.read(pieces)  # by now it has learnt which unknown fields to expect
    batch.validate(full=True)
    assert batch.schema.equals(reader.arrow_schema, check_metadata=True)
    for index, field in enumerate(batch.schema):
        if pa.types.is_timestamp(field.type):  # Python's own end with the year 9999
            batch = batch.set_column(index, field.name, batch.column(index).cast(pa.int64()))
    return batch.to_pylist()


@pytest.mark.law
@pytest.mark.parametrize("schema", [SCHEMA, STRINGS], ids=["typed", "strings"])
@pytest.mark.parametrize("case_sensitive", ["true", "false"])
@settings(max_examples=examples(60), deadline=None)
@given(lines=st.lists(RECORDS, max_size=5))
def test_the_fast_path_and_the_explaining_path_agree(schema, case_sensitive, lines):
    fast = read(lines, schema, readerCaseSensitive=case_sensitive)
    explained = read(lines, schema, explain=True, readerCaseSensitive=case_sensitive)
    assert repr(fast) == repr(explained)


@pytest.mark.law
@pytest.mark.parametrize("schema", [SCHEMA, STRINGS], ids=["typed", "strings"])
@settings(max_examples=examples(60), deadline=None)
@given(lines=st.lists(RECORDS, min_size=1, max_size=4))
def test_columns_and_rescued_data_give_back_every_record(schema, lines):
    for line, row in zip(lines, read(lines, schema), strict=True):
        assert_gives_back(line, row, schema)


@pytest.mark.law
@settings(max_examples=examples(40), deadline=None)
@given(lines=st.lists(RECORDS | st.sampled_from([b"", b"[1]", b"x", b'{"a', b"[]"]), max_size=9))
def test_how_lines_are_cut_into_chunks_changes_nothing(lines):
    whole = read(lines, SCHEMA)
    before = json_lines.CHUNK_BYTES
    json_lines.CHUNK_BYTES = 64
    try:
        assert repr(read(lines, SCHEMA)) == repr(whole)
    finally:
        json_lines.CHUNK_BYTES = before


@pytest.mark.law
def test_odd_records_among_many_plain_ones_leave_the_plain_ones_alone():
    generator = random.Random(5)
    plain = [b'{"long":%d,"string":"s%d","strings":["a",null]}' % (i, i) for i in range(3000)]
    odd = [b'{"long":"x"}', b'{"long":1,"long":2}', b'{"new":1}', b"{'long':7}", b"nope"]
    lines = [generator.choice(odd) if generator.random() < 0.05 else line for line in plain]
    rows = read(lines, SCHEMA)
    assert [repr(row) for row in rows] == [repr(row) for row in read(lines, SCHEMA, explain=True)]
    assert [row["long"] for row, line in zip(rows, lines, strict=True) if line in plain] == [
        number for number, line in enumerate(lines) if line in plain
    ]


# The law: what a record says, piece by piece, is in a column or in the rescued data ------------

Path = tuple[object, ...]


class Pairs(list):
    """The members of an object, in their order."""


def _parse(text: str) -> object:
    """JSON with the source text of numbers kept, and repeated keys."""
    return json.loads(text, object_pairs_hook=Pairs, parse_int=_Number, parse_float=_Number)


class _Number(str):
    __slots__ = ()


def _pieces(value: object, kind: DataType | None, path: Path = ()) -> list[tuple[Path, object]]:
    """A value as the smallest parts that a schema can tell apart, nulls left out."""
    if value is None:
        return []
    if isinstance(kind, StructType) and isinstance(value, Pairs):
        types = {each.name: each.dataType for each in kind.fields}
        return [p for k, v in value for p in _pieces(v, types.get(k), (*path, k))]
    if isinstance(kind, MapType) and isinstance(value, Pairs):
        return [p for k, v in value for p in _pieces(v, kind.valueType, (*path, k))]
    if isinstance(kind, ArrayType) and isinstance(value, list) and not isinstance(value, Pairs):
        return [p for i, v in enumerate(value) for p in _pieces(v, kind.elementType, (*path, i))]
    return [(path, value)]


def _column_pieces(value: object, kind: DataType, path: Path = ()) -> dict[Path, object]:
    if value is None:
        return {}
    if isinstance(kind, StructType):
        parts = [_column_pieces(value[f.name], f.dataType, (*path, f.name)) for f in kind.fields]
    elif isinstance(kind, MapType):
        parts = [_column_pieces(v, kind.valueType, (*path, k)) for k, v in value]
    elif isinstance(kind, ArrayType):
        parts = [_column_pieces(v, kind.elementType, (*path, i)) for i, v in enumerate(value)]
    elif isinstance(kind, FloatType) and isinstance(value, float):
        return {path: np.float32(value)}
    else:
        return {path: value}
    return {place: piece for part in parts for place, piece in part.items()}


def assert_gives_back(
    line: bytes, row: dict[str, object], schema: StructType, rule: str = "wholeNumbers"
) -> None:
    source = _pieces(_parse(line.decode()), schema)
    rescued_text = row["_rescued_data"]
    members = _parse(rescued_text) if rescued_text else Pairs([("_file_path", "file:///f.json")])
    assert members[-1] == ("_file_path", "file:///f.json")
    rescued = _pieces(Pairs(members[:-1]), schema)
    columns: dict[Path, object] = {}
    for each in schema.fields:
        columns.update(_column_pieces(row[each.name], each.dataType, (each.name,)))
    for path, piece in source:
        if (path, piece) in rescued:
            rescued.remove((path, piece))
        else:
            assert path in columns, (path, piece)
            assert means(columns.pop(path), piece, rule), (path, piece)
    assert not rescued
    assert not columns


def means(value: object, piece: object, rule: str) -> bool:  # noqa: C901, PLR0911 - one a type
    """Whether a column's value says what a piece of the source said."""
    if isinstance(value, str):
        return piece == value if type(piece) is str else _parse(value) == piece
    if isinstance(value, bool) or isinstance(piece, bool):
        return value is piece
    if isinstance(value, datetime):
        value = (value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    if isinstance(value, int):
        if not isinstance(piece, _Number):
            return value == _micros(piece)
        return value in {int(piece), int(piece) * 1_000_000}  # seconds, in a timestamp column
    if isinstance(value, float | np.float32):
        if not is_number(piece):
            return str(float(piece.replace("INF", "Infinity"))) == str(float(value))
        return gives_back(piece, float(value), rule, is_float=isinstance(value, np.float32))
    if isinstance(value, Decimal):
        return Decimal(piece.replace(",", "")) == value
    if isinstance(value, date):
        year, month, day = map(int, piece[:10].partition("T")[0].split("-"))
        return date(year, month, day) == value
    assert isinstance(value, bytes)
    return True


def _micros(piece: str) -> int:
    year, month, day = piece.strip().partition("T")[0].partition(" ")[0].split("-")
    clock = piece.strip()[len(f"{year}-{month}-{day}") :].replace(" ", "T")
    moment = datetime.fromisoformat(f"{year}-{month:0>2}-{day:0>2}{clock}")
    since = moment.replace(tzinfo=moment.tzinfo or UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return since // timedelta(microseconds=1)
