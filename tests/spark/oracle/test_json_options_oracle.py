"""Spark's own JSON reader is the oracle for every option that changes what is read."""

from __future__ import annotations

import json
import random
import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

import airflow_cloudfiles
from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.formats.base import LinePiece, line_blocks
from airflow_cloudfiles.engine.formats.json.document import JsonDocumentReader
from airflow_cloudfiles.engine.formats.json.reader import JsonReader
from airflow_cloudfiles.engine.formats.registry import fixed_schema, open_inference
from airflow_cloudfiles.engine.formats.registry import open_reader as open_any
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.reading.opened import StoreFile
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.types import canonical_struct

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

N = StructField("n", LongType())
CORRUPT = StructField("_corrupt_record", StringType())


def options(**given: str) -> CloudFilesOptions:
    return CloudFilesOptions.parse(
        {"cloudFiles.format": "json", "cloudFiles.schemaEvolutionMode": "rescue", **given},
        path="/landing",
    )


def opened(path: Path) -> StoreFile:
    """A file as the stream would open it."""
    entry = FileEntry(path=path.name, size=path.stat().st_size, modification_time_us=0)
    return StoreFile(open_store(f"file://{path.parent}"), entry)


# The grammar -----------------------------------------------------------------------------------

MEMBERS = [
    '"a":"x"', "'a':'y'", "a:1", "a-b@$:1", '"a":/* c */1', '"a":1 // c', "/**/", '"a":"q\\q"',
    '"a":"q\\é"', '"a":"\\u12"', '"a":"\t\x01"', "'a':'it\\'s'", '"a":"it\\\'s"', '"a":NaN',
    '"b":NaN', '"b":"NaN"', '"b":-Infinity', '"b":"-INF"', '"b":+INF', '"b":INF', '"c":007',
    '"c":-007', '"c":00', '"b":00.50', '"b":-01e2', '"a":007', "1:2", '"a":{b:1}', '"a":{\'b\':01}',
    '"a":[/*x*/1, 2]', '"c":1 /* never closed', "b:1.5", "true:1", '"c":1', '"b":2.5', '"a":null',
    "# no comment", '"b":.5', '"c":0x1F', '"a":"\x7f"',
]  # fmt: skip
SWITCHES = [
    "allowComments", "allowUnquotedFieldNames", "allowNumericLeadingZeros",
    "allowBackslashEscapingAnyCharacter", "allowUnquotedControlChars", "allowSingleQuotes",
    "allowNonNumericNumbers",
]  # fmt: skip
ALLOWED = {"allowSingleQuotes", "allowNonNumericNumbers"}
GRAMMARS = [
    {},
    *({each: str(each not in ALLOWED).lower()} for each in SWITCHES),
    dict.fromkeys(SWITCHES, "true"),
    dict.fromkeys(SWITCHES, "false"),
]


@pytest.mark.parametrize("given", GRAMMARS, ids=lambda given: "+".join(given) or "default")
def test_every_grammar_is_sparks(spark: SparkSession, tmp_path: Path, given: dict[str, str]):
    generator = random.Random(7)
    lines = [f'{{"n":{n},{member}}}' for n, member in enumerate(MEMBERS)]
    for n in range(len(lines), 600):
        some = generator.sample(MEMBERS, generator.randrange(1, 4))
        lines.append(f'{{"n":{n}, {", ".join(some)}}}')
    lines += ["// nothing but a comment", "/* one */ {'n':9000} // two", '{"n":9001} # no']
    schema = StructType(
        [
            N,
            StructField("a", StringType()),
            StructField("b", DoubleType()),
            StructField("c", LongType()),
            CORRUPT,
        ]
    )
    path = tmp_path / "records.json"
    path.write_text("\n".join(lines))
    theirs = spark.read.schema(schema).options(**given).json(str(path)).toArrow().to_pylist()
    reader = JsonReader(schema, options(**given))
    ours = reader.read([LinePiece("file:///f", path.read_bytes())]).to_pylist()
    assert disagreements(theirs, ours, ("n", "a", "b", "c"), expects=_known_differences) == []


def _known_differences(theirs: dict[str, object], ours: dict[str, object]) -> bool:
    """Rows that differ for a reason that decision 33 gives."""
    line = ours["_corrupt_record"] or ""
    # Spark stops reading behind the first value.
    return theirs["_corrupt_record"] is None and line.startswith("{") and "}" in line[:-1]


def disagreements(theirs, ours, columns, expects=lambda theirs, ours: False):
    """Rows that Spark reads otherwise; what Spark does not take must be kept apart here."""
    assert len(theirs) == len(ours)
    found = []
    for their, our in zip(theirs, ours, strict=True):
        apart = our["_corrupt_record"] is not None or our["_rescued_data"] is not None
        if their["_corrupt_record"] is not None:
            agree = apart
        else:
            same = [repr(their[each]) == repr(our[each]) for each in columns]
            agree = all(same) and our["_corrupt_record"] is None
        if not agree and not expects(their, our):
            found.append((their, our))
    return found


# Separators, encodings, documents -----------------------------------------------------------


@pytest.mark.parametrize(
    ("encoding", "separator"),
    [
        ("UTF-8", "||"),
        ("UTF-16LE", "\n"),
        ("UTF-16BE", "\r\n"),
        ("ISO-8859-1", "\n"),
        ("UTF-8", "\r"),
    ],
)
def test_encodings_and_separators_are_sparks(
    spark: SparkSession, tmp_path: Path, encoding: str, separator: str
):
    lines = [f'{{"n":{n},"a":"é{n}\\n"}}' for n in range(200)] + ['{"n":200,\n "a":"x"}', "nope"]
    if separator in {"\n", "\r\n"}:
        lines = [line for line in lines if "\n" not in line]
    path = tmp_path / "records.json"
    path.write_bytes(separator.join(lines).encode(encoding))
    schema = StructType([N, StructField("a", StringType()), CORRUPT])
    given = {"encoding": encoding, "lineSep": separator}
    theirs = spark.read.schema(schema).options(**given).json(str(path)).toArrow().to_pylist()
    chosen = options(**given)
    reader = JsonReader(schema, chosen)
    pieces = [
        LinePiece("file:///f", block) for block in line_blocks(opened(path), chosen.format_options)
    ]
    ours = reader.read(pieces).to_pylist()
    assert disagreements(theirs, ours, ("n", "a", "_corrupt_record")) == []


DOCUMENTS = [
    '{"n":1,"a":"x"}', '{\n  "n": 2,\n  "a": "y"\n}\n', '[{"n":3},\n {"n":4,"a":{"b":\n1}}]', "[]",
    " \n", '[{"n":5,"b":"no"}]', "nope", '[{"n":6}, 7]', '{"n":8,"a":"line\nbreak"}', "[[1]]",
    "{'n':9,'a':NaN}", '[{"n":10,"a":[1,\n 2]}]', '"text"', "{", '[{"n":11}', '{"n":12}\n',
]  # fmt: skip


def test_documents_are_read_as_spark_reads_them(spark: SparkSession, tmp_path: Path):
    schema = StructType([N, StructField("a", StringType()), StructField("b", LongType()), CORRUPT])
    for number, document in enumerate(DOCUMENTS):
        (tmp_path / f"{number:02}.json").write_text(document)
    frame = spark.read.schema(schema).option("multiLine", "true").json(str(tmp_path))
    rows = frame.select("*", "_metadata.file_name").toArrow().to_pylist()
    for path in sorted(tmp_path.iterdir()):
        theirs = [row for row in rows if row["file_name"] == path.name]
        reader = JsonDocumentReader(schema, options(multiLine="true"))
        ours = [row for batch in reader.read_file(opened(path)) for row in batch.to_pylist()]
        for row in (*theirs, *ours):  # Spark writes what it takes as text anew, without blanks
            row["a"] = None if row["a"] is None else re.sub(r"\s", "", row["a"]).strip('"')
        assert disagreements(theirs, ours, ("n", "a", "b")) == [], path.read_text()


# Dates and times -------------------------------------------------------------------------------

PATTERNS = [
    "yyyy-MM-dd", "dd.MM.yyyy", "M/d/yyyy", "MM/dd/yy", "yyyyMMdd", "yyyyDDD", "dd MMM yyyy",
    "d MMMM yyyy", "yyyy", "MM-dd", "dd/MM/yyyy HH:mm", "yyyy-MM-dd'T'HH:mm:ss.SSS",
    "yyyy-MM-dd HH:mm:ss[.SSS][XXX]", "yyyyMMddHHmmss", "yyyyMMddHHmmssSSS",
    "MM/dd/yyyy hh:mm:ss a", "yyyy-MM-dd HH:mm a", "yyyy-MM-dd kk:mm", "KK:mm a yyyy-MM-dd",
    "dd/MMM/yyyy:HH:mm:ss Z", "yyyy-MM-dd HH:mm:ss z", "yyyy-MM-dd HH:mm VV",
    "yyyy-MM-dd'T'HH:mmX", "yyyy-MM-dd HH:mm O", "yyyy-MM-dd HH:mm ZZZZ", "G yyyy-MM-dd", "y-M-d",
    "yyyyy-MM-dd", "''yyyy''MM", "yyyy[-MM[-dd]]", "[yyyy-MM-dd][dd.MM.yyyy]", "Mdd", "s.SSSSSSSSS",
    "[MM/dd/yyyy]HH", "yyyy-MM-dd HH:mm:ss[.SSSSSSSSS][XXX]",
]  # fmt: skip
ZONES = ["Z", "+01:00", "-0530", "+05", "+19:00", "UTC", "GMT+1", "GMT+01:00", "Europe/Paris",
         "PST", "america/new_york", "+01:02:03", "X"]  # fmt: skip
EDGES = ["", "2024-02-30", "20240230", "0000-01-01", "-2024-01-01", "+12024-01-01",
         "2024-01-31 24:00:00", "20240131123059123", "2024-03-31 02:30:00", "null"]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_mean_what_they_mean_to_spark(spark: SparkSession, tmp_path: Path, pattern: str):
    generator = random.Random(pattern)
    texts = [_spelled(pattern, generator) for _ in range(120)] + EDGES
    path = tmp_path / "times.json"
    path.write_text("\n".join(json.dumps(dict.fromkeys("dtl", text)) for text in texts))
    given = {
        "dateFormat": pattern,
        "timestampFormat": pattern,
        "timestampNTZFormat": pattern,
        "timeZone": "Europe/Paris",
    }
    schema = StructType(
        [
            StructField("d", DateType()),
            StructField("t", TimestampType()),
            StructField("l", TimestampNTZType()),
        ]
    )
    theirs = numbers(spark.read.schema(schema).options(**given).json(str(path)).toArrow())
    reader = JsonReader(schema, options(**given))
    ours = numbers(
        pa.Table.from_batches([reader.read([LinePiece("file:///f", path.read_bytes())])])
    )
    for name in ("t", "l"):
        # Spark cuts off what is finer than a microsecond; here it does not fit.
        expected = [
            None if is_finer(pattern, text) else their
            for text, their in zip(texts, theirs[name], strict=True)
        ]
        assert ours[name] == expected, differing(texts, expected, ours[name])
    # A time of day that a date would lose does not fit it here.
    pairs = zip(theirs["d"], ours["d"], strict=True)
    assert all(our == their or (our is None and is_timed(pattern)) for their, our in pairs)


def is_finer(pattern: str, text: str) -> bool:
    """Whether a text has a fraction with more than microseconds."""
    return "SSSSSSS" in pattern and re.search(r"\.\d{6}\d*[1-9]", text) is not None


def is_timed(pattern: str) -> bool:
    """Whether a pattern tells more than a day."""
    return any(letter in re.sub("'[^']*'", "", pattern) for letter in "HhKkmsSaXZzOV")


def differing(texts, theirs, ours):
    """For the message of a failure."""
    return [each for each in zip(texts, theirs, ours, strict=True) if each[1] != each[2]][:5]


def numbers(table: pa.Table) -> dict[str, list[int | None]]:
    """Days and microseconds: Python's own end with the year 9999."""
    whole = {"d": pa.int32(), "t": pa.int64(), "l": pa.int64()}
    return {name: table[name].cast(kind).to_pylist() for name, kind in whole.items()}


def _spelled(pattern: str, generator: random.Random) -> str:
    """A moment by a pattern, now and then with a slip."""
    years = [1, 99, 1582, 1969, 1970, 2000, 2024, 2026, 9999]
    moment = datetime(generator.choice(years), 1, 1)  # noqa: DTZ001 - has no zone yet
    moment += timedelta(days=generator.randrange(364), seconds=generator.randrange(86_400))
    if generator.random() < 0.2:
        moment = moment.replace(hour=generator.choice([0, 12]), minute=0, second=0)
    text = ""
    for found in re.finditer(r"'([^']*)'|([A-Za-z])\2*|.", pattern):
        if found[1] is not None:
            text += found[1] or "'"
        elif found[2] is None:
            text += found[0].strip("[]")
        elif generator.random() < 0.03:
            text += str(generator.randrange(99))
        else:
            text += _field(found[2], len(found[0]), moment, generator)
    if generator.random() < 0.15 and text:
        place = generator.randrange(len(text))
        text = text[:place] + generator.choice(["", "0", " ", "-", "x", "9"]) + text[place + 1 :]
    return text


def _field(letter: str, count: int, moment: datetime, generator: random.Random) -> str:
    values = {
        "y": moment.year % 100 if count == 2 else moment.year,
        "M": moment.month,
        "d": moment.day,
        "D": moment.timetuple().tm_yday,
        "H": moment.hour,
        "k": moment.hour or 24,
        "h": moment.hour % 12 or 12,
        "K": moment.hour % 12,
        "m": moment.minute,
        "s": moment.second,
    }
    if letter == "M" and count > 2:
        return moment.strftime("%b" if count == 3 else "%B")
    if letter in values:
        return str(values[letter]).zfill(count)
    if letter == "S":
        return str(generator.randrange(10**9)).zfill(9)[: generator.randrange(1, count + 1)]
    if letter == "a":
        return "AM" if moment.hour < 12 else "pm"
    return generator.choice(["AD", "BC", "ad"] if letter == "G" else ZONES)


@pytest.mark.parametrize("locale", ["de-DE", "fr-FR", "en-GB"])
def test_locales_are_javas(spark: SparkSession, tmp_path: Path, locale: str):
    texts = [
        "1.234,5",
        "1,234.5",
        "12",
        "-3,25",
        "+3",
        "1e3",
        "1E3",
        "x",
        "1 234,5",
        ",5",
        "5,",
        "",
    ]
    months = ["01 Januar 2024", "02 März 2024", "03 mars 2024", "04 September 2024", "5 May 2024"]
    lines = [json.dumps({"a": text}) for text in texts] + [json.dumps({"d": m}) for m in months]
    path = tmp_path / "texts.json"
    path.write_text("\n".join(lines))
    given = {"locale": locale, "dateFormat": "dd MMMM yyyy"}
    schema = StructType([StructField("a", DecimalType(10, 3)), StructField("d", DateType())])
    theirs = spark.read.schema(schema).options(**given).json(str(path)).toArrow().to_pylist()
    reader = JsonReader(schema, options(**given))
    ours = reader.read([LinePiece("file:///f", path.read_bytes())]).to_pylist()
    assert [(row["a"], row["d"]) for row in ours] == [(row["a"], row["d"]) for row in theirs]


# Inference -------------------------------------------------------------------------------------

RECORDS = [
    json.dumps(each)
    for each in (
        {"i": 1, "f": 1.25, "s": "2.50", "t": "2024-01-31 12:30:59", "e": [], "z": None},
        {"u": "2024-01-31T12:30:59Z", "i": 10**20 - 1, "f": 12.5, "s": "1,000", "b": True},
        {"t": "2024-02-01", "u": "2024", "e": [None], "o": {"x": None, "y": [{}]}},
        {"i": 3, "f": 0.001, "s": "7", "t": "2024-01-31 1:2", "u": "x", "q": [1.5, 2]},
        {"p": ["2024-01-01", None], "w": "0.001"},
    )
] + ['{"m":1e3}', '{"w":1.12345678901234567890123456789012345678901,"f":1.10}']


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"prefersDecimal": "true"},
        {"inferTimestamp": "true"},
        {"primitivesAsString": "true"},
        {"dropFieldIfAllNull": "true"},
        {"inferTimestamp": "true", "timestampFormat": "yyyy-MM-dd[ HH:mm:ss]"},
        {"inferTimestamp": "true", "timestampFormat": "yyyy", "prefersDecimal": "true"},
        {"primitivesAsString": "true", "inferTimestamp": "true", "dropFieldIfAllNull": "true"},
    ],
    ids=lambda given: "+".join(given) or "default",
)  # fmt: skip
def test_what_is_inferred_is_what_spark_infers(spark: SparkSession, tmp_path: Path, given):
    path = tmp_path / "records.json"
    # 1e3 has a negative scale, which Spark refuses together with its record.
    lines = [each for each in RECORDS if "prefersDecimal" not in given or "1e3" not in each]
    path.write_text("\n".join(lines))
    theirs = spark.read.options(**given).json(str(path)).schema
    inference = open_inference(options(**given, **{"cloudFiles.inferColumnTypes": "true"}))
    list(inference.add_file(opened(path)))
    ours = canonical_struct(inference.result())
    assert {each.name: each.dataType for each in ours} == {
        each.name: each.dataType for each in theirs
    }


# VARIANT ---------------------------------------------------------------------------------------


def test_variants_are_the_bytes_that_spark_makes(spark: SparkSession, tmp_path: Path):
    generator = random.Random(4)
    lines = [json.dumps(_any_value(generator, 0)) for _ in range(1500)]
    lines += [
        "{'a':1}",
        "123456789012345678901234567890",
        "1.10",
        "1e5",
        "-0",
        '{"é":1,"z":2,"A":3}',
    ]
    lines += ["NaN", "[-INF, +Infinity]", "[1e9999]", "9" * 400, "[" * 500 + "1.5" + "]" * 500]
    lines += [
        '{"b":[{"a":' * 300 + "1" + "}]}" * 300,
        '{"a":"b"}#',
        '{"a":1} {"b":2}',
        "[1]x",
        "1 2",
    ]
    lines += ["0." + "1" * 38, "1" * 38, "1" * 39, "-0.0", '"\\u0000"', '{"b":1,"a":{"b":2}}']
    path = tmp_path / "records.json"
    path.write_text("\n".join(lines))
    frame = spark.read.option("singleVariantColumn", "v").json(str(path))
    theirs = [(bytes(row.v.value), bytes(row.v.metadata)) for row in frame.collect()]
    chosen = options(singleVariantColumn="v")
    reader = open_any(fixed_schema(chosen), chosen)
    rows = reader.read([LinePiece("file:///f", path.read_bytes())]).to_pylist()
    ours = [(row["v"]["value"], row["v"]["metadata"]) for row in rows]
    assert [(line, t, o) for line, t, o in zip(lines, theirs, ours, strict=True) if t != o] == []


def test_a_stream_of_variants_reaches_a_sink_of_spark(spark: SparkSession, tmp_path: Path):
    landing = tmp_path / "landing"
    landing.mkdir()
    (landing / "f.json").write_text('{"a":1.5}\nbroken\n[1]')

    def run(sink: str) -> None:
        frame = (
            spark.readStream.format("cloudFiles")
            .option("cloudFiles.format", "json")
            .option("singleVariantColumn", "v")
            .load(str(landing))
        )
        query = (
            frame.writeStream.format(sink)
            .option("checkpointLocation", str(tmp_path / f"state-{sink}"))
            .trigger(availableNow=True)
            .start(str(tmp_path / sink))
        )
        query.awaitTermination()

    airflow_cloudfiles.register(spark)
    run("parquet")
    found = spark.read.parquet(str(tmp_path / "parquet")).selectExpr(
        "to_json(v) v", "_rescued_data"
    )
    assert sorted(row.v or "" for row in found.collect()) == ["", "[1]", '{"a":1.5}']


def _any_value(generator: random.Random, depth: int) -> object:
    kind = generator.randrange(9 if depth < 4 else 7)
    if kind == 7:
        width = 300 if generator.random() < 0.02 else generator.randrange(5)
        keys = (f"k{generator.randrange(400)}é"[: generator.randrange(2, 6)] for _ in range(width))
        return {key: _any_value(generator, depth + 1) for key in keys}
    if kind == 8:
        width = 300 if generator.random() < 0.02 else generator.randrange(5)
        return [_any_value(generator, depth + 1) for _ in range(width)]
    return [
        None,
        True,
        generator.randrange(-300, 300),
        generator.randrange(-(2**63), 2**63),
        round(generator.uniform(-9, 9), generator.randrange(1, 15)),
        "x" * generator.randrange(90),
        generator.uniform(-1, 1) * 10.0 ** generator.randrange(-30, 30),
    ][kind]
