"""Spark's own CSV reader is the oracle for every value that fits, and for what a record holds."""

from __future__ import annotations

import json
import math
import random
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from airflow_cloudfiles.engine.formats.csv.lines import Tokenizer
from tests.support.formats.csv_files import columns, inferred, opened, options, reader, rows_of
from tests.support.formats.numbers_law import OPTION

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

KINDS = [
    "STRING", "BIGINT", "INT", "SMALLINT", "TINYINT", "DOUBLE", "FLOAT", "BOOLEAN", "DECIMAL(7,3)",
    "DECIMAL(38,10)", "DECIMAL(38,0)", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "BINARY",
]  # fmt: skip
NAMES = [f"c{place}" for place in range(len(KINDS))]
DDL = ", ".join(f"{name} {kind}" for name, kind in zip(NAMES, KINDS, strict=True))

TEXTS = [
    "0", "-0", "1", "-1", "+7", "007", "127", "128", "-128", "-129", "32767", "32768",
    "2147483647", "2147483648", "9223372036854775807", "9223372036854775808", "1" * 38, "1" * 39,
    "-9223372036854775808", "1.0", "1.10", "-1.5e3", "1E2", "1e400", "-1e400", "1e39", "1e-400",
    "3.4028234e38", "1e-46", "7.038531e-26", "0.1234567890123", "12345.678", "9999.999",
    "9999.9994", "9999.9995", "1.2345", "1e-4", "16777217", "9007199254740993", "1.", "+.5", ".5",
    "5d", "5.5f", "0x10", "0x1p3", "NaN", "nan", "Inf", "-Inf", "inf", "Infinity", "-Infinity",
    "+Infinity", "+NaN", " 1", "1 ", " 1.5 ", "\t2", "1_000", "1 000", "$1", "1.234.5", "--1", "+",
    "-", "e5", "1e", "true", "TRUE", "False", "t", "yes", "2024-02-29", "2024-2-9", "2023-02-29",
    "2024", "2024-01", " 2024-01-31 ", "2024-01-31T12:30:59Z", "2024-01-31T12:30:59.123456Z",
    "2024-01-31 12:30:59", "2024-01-31T12:30:59.1+05:30", "2024-01-31T25:00:00Z",
    "2024-01-31T12:30Z", "2024-01-31T12:30", "2024-01-31 12", "2024-01-31T00:00:00Z",
    "2024-01-31T12:30:59.123456789Z", "2024-01-31T12:30:59.123456000Z",
    "2024-01-31 12:30:59.1234567", "2024-01-31 12:30:59.1234560",
    "2024-01-31 1:2:3.123456789", "2024-01-31T12:30:59 Europe/Paris", "12:30:59", "1:2",
    "2024-01-31T12:30:59GMT+1", "2024-01-31T12:30:59-0530", "2024-01-31T12:30:59 PST",
    "0001-01-01", "9999-12-31T23:59:59.999999Z", "1582-10-10", "1582-10-10T00:00:00Z",
    "2024-02-29 x", "20240131", "2024/01/31", "x", "é😀", "null", "\u0661\u0662",
    "\uff11\uff12", "0.0", "-0.0", "1e5", "00.50", "1.50000", "123456789012345678",
    "1234567890123456789", "0.12345678901", "2024-01-31GMT", "9105330", "9105330-01-01", "",
]  # fmt: skip


def _random_text(generator: random.Random) -> str:
    """A value of any kind."""
    date = f"{generator.randrange(1, 9999):04}-{generator.randrange(1, 13):02}"
    date += f"-{generator.randrange(1, 29):02}"
    clock = (
        f"{generator.randrange(24):02}:{generator.randrange(60):02}:{generator.randrange(60):02}"
    )
    fraction = generator.choice(["", f".{generator.randrange(10**6)}"])
    zone = generator.choice(["", "Z", "+01:00", "-05:30", "+9:00", " UTC"])
    digits = "".join(generator.choice("0123456789.-+eE") for _ in range(generator.randrange(1, 8)))
    return generator.choice(
        [
            str(generator.randrange(-(2**66), 2**66)),
            str(generator.randrange(-(2**31), 2**31)),
            str(generator.randrange(-300, 300)),
            repr(generator.uniform(-1e6, 1e6)),
            f"{generator.uniform(-1, 1) * 10.0 ** generator.randrange(-40, 40):.17e}",
            f"{generator.uniform(-99, 99):.{generator.randrange(1, 4)}f}",
            date,
            date + generator.choice("T ") + clock + fraction + zone,
            digits,
            generator.choice(TEXTS),
        ]
    )


def _differs_on_purpose(kind: str, text: str, theirs: object) -> bool:
    """Whether Spark changes the value, where it is rescued here (decision 28)."""
    if kind.startswith("DECIMAL"):
        exact = Decimal(text.replace(",", ""))  # Spark rounds to the scale
        return exact.is_finite() and exact != theirs
    if kind in {"FLOAT", "DOUBLE"}:
        return isinstance(theirs, float) and math.isinf(theirs)  # Spark takes it for infinity
    if kind == "DATE":
        return len(text.strip()) > len("2024-01-31")  # Spark drops the time of day
    if kind.startswith("TIMESTAMP") and re.search(r"\.\d{6}\d*[1-9]", text):
        return True  # Spark cuts off what is finer than a microsecond
    # Spark takes a time alone as today's.
    return kind == "TIMESTAMP" and re.fullmatch(r"\d{1,2}(:\d{1,2})+", text) is not None


def _same(ours: object, theirs: object) -> bool:
    if isinstance(ours, float) and isinstance(theirs, float):
        return repr(ours) == repr(theirs)
    return ours == (bytes(theirs) if isinstance(theirs, bytearray) else theirs)


def _numbers(kind: str, column: pa.ChunkedArray) -> list[Any]:
    """Dates and times as the numbers they are."""
    whole = {"DATE": pa.int32(), "TIMESTAMP": pa.int64(), "TIMESTAMP_NTZ": pa.int64()}.get(kind)
    return (column if whole is None else column.cast(whole)).to_pylist()


@pytest.fixture(scope="module")
def values(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Thousands of texts, each in a column of every type; and what Spark reads."""
    from pyspark.sql.functions import expr

    generator = random.Random(20)
    texts = TEXTS + [_random_text(generator) for _ in range(4000)]
    path = tmp_path_factory.mktemp("oracle") / "values.csv"
    lines = [",".join([text] * len(KINDS)) for text in texts]
    path.write_text("\n".join([",".join(NAMES), *lines]), encoding="utf-8")
    found = {
        "DATE": "unix_date({0})",
        "TIMESTAMP": "unix_micros({0})",
        "TIMESTAMP_NTZ": "unix_micros(CAST({0} AS TIMESTAMP))",
    }
    frame = spark.read.schema(DDL).option("header", True).csv(str(path))
    chosen = [
        expr(found.get(kind, "{0}").format(name)) for name, kind in zip(NAMES, KINDS, strict=True)
    ]
    return path, texts, [tuple(row) for row in frame.select(chosen).collect()]


@pytest.mark.parametrize("is_thorough", [False, True])
def test_every_value_that_fits_is_sparks(values: Any, is_thorough: bool) -> None:
    path, texts, theirs = values
    found = reader(DDL, is_thorough=is_thorough, **{OPTION: "none"})
    batch = pa.Table.from_batches(found.read_file(opened(path)))
    arrays = [_numbers(kind, batch.column(name)) for name, kind in zip(NAMES, KINDS, strict=True)]
    compared = 0
    assert batch.num_rows == len(texts) == len(theirs)
    for text, ours, theirs_row, rescued in zip(
        texts, zip(*arrays, strict=True), theirs, batch.column(-1).to_pylist(), strict=True
    ):
        lost = json.loads(rescued) if rescued else {}
        for name, kind, one, other in zip(NAMES, KINDS, ours, theirs_row, strict=True):
            assert lost.get(name) == (text if one is None and text else None), (kind, text)
            if not _same(one, other):
                assert one is None, (kind, text, one, other)
                assert _differs_on_purpose(kind, text, other), (kind, text, other)
            compared += one is not None
    assert compared > 10_000


DIALECTS: list[dict[str, Any]] = [
    {},
    {"escape": '"'},
    {"sep": "\t"},
    {"sep": "||"},
    {"ignoreLeadingWhiteSpace": True, "ignoreTrailingWhiteSpace": True},
    {"nullValue": "a", "emptyValue": "E"},
    {"comment": "#"},
    {"unescapedQuoteHandling": "STOP_AT_CLOSING_QUOTE", "escape": '"'},
    {"quote": ""},
    {"multiLine": True},
    {"multiLine": True, "escape": '"', "comment": "#"},
    {"multiLine": True, "nullValue": "b"},
]
WIDE = [f"c{place}" for place in range(6)]


def _record(generator: random.Random, sep: str, *, can_break: bool) -> str:
    """A record of up to eight values; some with quotes where none should be."""
    inside = [sep, '""', '\\"', "a", "b", " ", "é", "#", "'", "\\x", *("\n" if can_break else [])]
    values = []
    for _ in range(generator.randrange(1, 8)):
        kind = generator.randrange(8)
        text = "".join(generator.choice(inside) for _ in range(generator.randrange(4)))
        if kind <= 2:
            values.append("".join(generator.choice("ab 12é#") for _ in range(kind)))
        elif kind == 3:
            values.append("")
        elif kind <= 5:
            values.append(f'"{text}"')
        elif kind == 6:
            values.append(f'"{text.replace(chr(34), "")}" ')
        else:
            values.append(generator.choice(['a"b', '"a"b"', '"a" b', "a\\b", '"a""b"', "x'y"]))
    return sep.join(values)


def _is_known_to_differ(record: str, dialect: dict[str, Any]) -> bool:
    """Where univocity loses something, or reads on into the next value (decision 28)."""
    escape = dialect.get("escape", "\\")
    if escape == "\\" and re.search(r'"\s*\\', record):
        return True  # an escape after a quote swallows what comes
    if dialect.get("sep", ",") != ",":
        # A separator beside a quote inside of a quoted value ends it; a blank swallows a tab.
        return '"' in record
    return dialect.get("unescapedQuoteHandling") is not None and '"' in record


@pytest.mark.parametrize("dialect", DIALECTS, ids=str)
def test_every_record_holds_what_it_holds_for_spark(
    spark: SparkSession, tmp_path: Path, dialect: dict[str, Any]
) -> None:
    generator = random.Random(str(dialect))
    sep, breaks = dialect.get("sep", ","), bool(dialect.get("multiLine"))
    records: list[str] = []
    while len(records) < 400:
        record = _record(generator, sep, can_break=breaks)
        if not _is_known_to_differ(record, dialect) and (not breaks or _is_closed(record, dialect)):
            records.append(record)
    records[100:100] = ["", " ", "# no, comment", "x" + sep + "y"]
    path = tmp_path / "f.csv"
    path.write_bytes(generator.choice(["\n", "\r\n"]).join([sep.join(WIDE), *records]).encode())
    ddl = ", ".join(f"{name} STRING" for name in WIDE) + ", _corrupt_record STRING"
    theirs = [
        tuple(row)
        for row in spark.read.schema(ddl).options(header=True, **dialect).csv(str(path)).collect()
    ]
    for is_thorough in (False, True):
        found = reader(ddl, is_thorough=is_thorough, header=True, **dialect)
        ours = [tuple(row.values())[:7] for row in rows_of(opened(path), found)]
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert one[:6] in (other[:6], _without_last_quote(other[:6])), one
            # Spark's text of a corrupt record that spans lines is not its source text, and it does
            # not mark one that ends within quotes.
            is_open = one[6] is not None and _ends_in_quotes(one[6], dialect)
            assert one[6] == other[6] or is_open or (breaks and one[6] and other[6])


def _without_last_quote(values: tuple[str | None, ...]) -> tuple[str | None, ...]:
    """A record that ends with a quote which was not escaped: univocity doubles that."""
    last = max(place for place in range(6) if values[place] is not None or place == 0)
    text = (values[last] or "").removesuffix('"')
    return (*values[:last], text, *values[last + 1 :]) if text.endswith('"') else values


def _ends_in_quotes(record: str, dialect: dict[str, Any]) -> bool:
    tokens = Tokenizer(options(**dialect).format_options)
    tokens.values(record)
    return tokens.ended_in_quotes


def _is_closed(record: str, dialect: dict[str, Any]) -> bool:
    """Whether nothing in it reads on into the next line, and no comment has a second one."""
    if "comment" in dialect and "\n" in record and "#" in record:
        return False
    return re.fullmatch(r'[^"\\]*("[^"\\]*"[^"\\]*)*', record) is not None


@pytest.mark.parametrize("has_header", [True, False])
def test_inferred_types_are_sparks(
    spark: SparkSession, tmp_path: Path, has_header: bool
) -> None:  # B7, B8
    generator = random.Random(7)
    kinds = [
        lambda: str(generator.randrange(-(2**31), 2**31)),
        lambda: str(generator.randrange(-(2**62), 2**62)),
        lambda: str(generator.randrange(10**25)),
        lambda: f"{generator.uniform(-9, 9):.3f}",
        lambda: generator.choice(["1", "2.5", "", "NaN", "1e9"]),
        lambda: f"2024-{generator.randrange(1, 13):02}-{generator.randrange(1, 29):02}",
        lambda: f"2024-01-31T{generator.randrange(24):02}:30:59Z",
        lambda: generator.choice(["2024-01-31", "2024-01-31 12:30:59"]),
        lambda: generator.choice(["true", "FALSE", ""]),
        lambda: generator.choice(["1", "true"]),
        lambda: generator.choice(["x", "1"]),
        lambda: "",
    ]
    names = ["a", "B", "b", "", "e", "f", "g", "h", "i", "j", "k", "l"]
    lines = [",".join(make() for make in kinds) for _ in range(300)]
    path = tmp_path / "f.csv"
    path.write_text("\n".join([",".join(names), *lines] if has_header else lines))
    frame = spark.read.options(header=has_header, inferSchema=True).csv(str(path))
    theirs = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    ours = inferred(opened(path), typed=True, header=has_header)
    assert {name: "string" if kind == "void" else kind for name, kind in ours.items()} == theirs
    assert columns(", ".join(f"`{name}` {kind}" for name, kind in theirs.items()))
