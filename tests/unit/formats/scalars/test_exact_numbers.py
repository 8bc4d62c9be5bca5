"""A DOUBLE or FLOAT has the number of the file, or the number is rescued, as the option says."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_cloudfiles.engine.errors import OptionError, UnsupportedOptionError
from airflow_cloudfiles.engine.formats.record_policy import NumberRule
from airflow_cloudfiles.engine.formats.scalars import exact_decimal
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from tests.support.formats.numbers_law import NUMBERS, OPTION, RULES, gives_back, is_rescued
from tests.support.landed import Stream
from tests.support.promoted import Landed

NESTED = "s STRUCT<d: DOUBLE>, a ARRAY<FLOAT>, k MAP<STRING, DOUBLE>"
FLAT = "d DOUBLE, f FLOAT, m DECIMAL(20,2)"
LEADING = ["0.5", "0", "7"]
"""What is read beside them, so that a column is not odd throughout."""


def _file(kind: str, texts: list[str]) -> str:
    if kind == "json":
        record = '{"d":%s,"f":%s,"m":%s,"s":{"d":%s},"a":[%s],"k":{"x":%s}}\n'
        return "".join(record % ((text,) * 6) for text in texts)
    if kind == "csv":
        return "d,f,m\n" + "".join(f"{text},{text},{text}\n" for text in texts)
    row = "<d>{0}</d><f>{0}</f><m>{0}</m><s><d>{0}</d></s><a>{0}</a><k><x>{0}</x></k>"
    return f"<r>{''.join(f'<row>{row.format(text)}</row>' for text in texts)}</r>"


def _rows(folder: Path, kind: str, texts: list[str], **options: str) -> list[dict[str, Any]]:
    (folder / "in").mkdir()
    (folder / "in" / "1").write_text(_file(kind, texts))
    hints = FLAT if kind == "csv" else f"{FLAT}, {NESTED}"
    more = {"rowTag": "row"} if kind == "xml" else {}
    given = {"cloudFiles.schemaHints": hints, **more, **options}
    rows = Stream(folder / "in", folder / "state", kind, **given).run()
    assert len(rows) == len(texts)
    return rows


def _assert_is_in_one_place(text: str, value: float | None, left: object, rule: str) -> None:
    if value is None:
        assert str(left) == text
        assert is_rescued(text, rule, is_float=False)
    else:
        assert left is None
        assert gives_back(text, value, rule, is_float=False), (text, value)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kind", ["json", "csv", "xml"])
def test_a_number_is_what_the_file_has_or_it_is_rescued(
    tmp_path: Path, kind: str, rule: str
) -> None:
    texts = NUMBERS + LEADING
    rows = _rows(tmp_path, kind, texts, **{OPTION: rule})
    for text, row in zip(texts, rows, strict=True):
        rescued = json.loads(row["_rescued_data"] or "{}", parse_float=str, parse_int=str)
        _assert_is_in_one_place(text, row["d"], rescued.get("d"), rule)
        assert (row["f"] is None) == is_rescued(text, rule, is_float=True)
        assert (row["f"] is None) == (rescued.get("f") == text)
        if row["f"] is not None:
            assert gives_back(text, row["f"], rule, is_float=True)
        assert (row["m"] is None) == (rescued.get("m") == text)
        number = exact_decimal(text)
        assert row["m"] is None or row["m"] == number
        if kind == "csv":
            continue
        assert (row["s"], row["a"], dict(row["k"])) == (
            {"d": row["d"]},
            [row["f"]],
            {"x": row["d"]},
        )
        assert rescued.get("s") == (None if row["d"] is not None else {"d": text})
        assert rescued.get("k") == (None if row["d"] is not None else {"x": text})
        assert rescued.get("a") in ([None] if row["f"] is not None else [text, [text]])


@pytest.mark.parametrize("kind", ["json", "csv", "xml"])
def test_without_a_rescued_data_column_numbers_are_those_of_spark(
    tmp_path: Path, kind: str
) -> None:
    name = {"json": "json", "csv": "csv", "xml": "xml"}[kind]
    given = {"cloudFiles.format": name, **({"rowTag": "row"} if kind == "xml" else {})}
    without = CloudFilesOptions.parse(given, path="/landing", has_schema=True)
    assert NumberRule.of(without) == NumberRule("none", infinite=True)
    named = CloudFilesOptions.parse(
        {**given, "rescuedDataColumn": "r"}, path="/landing", has_schema=True
    )
    assert NumberRule.of(named) == NumberRule("wholeNumbers")
    rows = _rows(tmp_path, kind, NUMBERS)
    assert [row["d"] for row in rows].count(None) > 10, "the default rescues"


@pytest.mark.law
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kind", ["json", "csv", "xml"])
def test_a_promoted_number_obeys_the_same_rule(tmp_path: Path, kind: str, rule: str) -> None:
    landed = Landed.create(tmp_path, "id BIGINT", kind)
    if kind == "json":
        records: list[object] = [
            f'{{"id":{number},"d":{text},"f":{text}}}'.encode()
            for number, text in enumerate(NUMBERS)
        ]
    else:
        records = [{"id": number, "d": text, "f": text} for number, text in enumerate(NUMBERS)]
    landed.land(*records)
    options = {OPTION: rule, **({"rowTag": "row"} if kind == "xml" else {})}
    landed.promote({"d": "DOUBLE", "f": "FLOAT"}, **options)
    for row in landed.rows():
        text = NUMBERS[row["id"]]
        assert (row["d"] is None) == is_rescued(text, rule, is_float=False), text
        assert (row["f"] is None) == is_rescued(text, rule, is_float=True), text
        rescued = row["_rescued_data"] or {}
        assert ({"d", "f"} & rescued.keys()) == {name for name in "df" if row[name] is None}


def test_the_option_is_checked() -> None:
    given = {"cloudFiles.format": "json", OPTION: "wholenumber"}
    with pytest.raises(OptionError, match="Did you mean wholeNumbers"):
        CloudFilesOptions.parse(given, path="/landing")
    with pytest.raises(
        UnsupportedOptionError, match="is an option of format csv, excel, json, xml"
    ):
        CloudFilesOptions.parse({"cloudFiles.format": "parquet", OPTION: "all"}, path="/landing")


def _text(generator: random.Random) -> str:
    """A number in decimal, near an edge more often than not."""
    pick = generator.randrange(6)
    if pick == 0:
        return generator.choice(NUMBERS)
    if pick == 1:
        return str(generator.choice([2**24, 2**53, 2**63, 10**22]) + generator.randrange(-9, 9))
    if pick == 2:
        return str(generator.randrange(-(10 ** generator.randrange(1, 40)), 10**18))
    if pick == 3:
        return repr(generator.uniform(-1, 1) * 10.0 ** generator.randrange(-320, 300))
    digits = "".join(generator.choices("0123456789", k=generator.randrange(1, 22)))
    fraction = "".join(generator.choices("0123456789", k=generator.randrange(1, 22)))
    exponent = generator.choice(["", "", f"e{generator.randrange(-400, 320)}"])
    return f"{int(digits)}.{fraction}{exponent}"


@pytest.mark.law
@settings(max_examples=100)
@given(seed=st.integers(0, 2**48), rule=st.sampled_from(RULES), is_float=st.booleans())
def test_whole_columns_are_judged_as_each_number(seed: int, rule: Any, is_float: bool) -> None:
    generator = random.Random(seed)
    texts = [_text(generator) for _ in range(200)]
    kind = pa.float32() if is_float else pa.float64()
    array = pa.array(texts).cast(kind)
    judged = NumberRule(rule)
    doubtful = judged.doubtful(pa.array(texts), array)
    places = np.zeros(len(texts), np.bool_) if doubtful is None else doubtful
    for text, value, is_doubtful in zip(texts, array.to_pylist(), places.tolist(), strict=True):
        if np.isinf(value):
            continue
        holds = judged.holds(text, value, is_float=is_float)
        assert holds or is_doubtful, text
        assert holds == (not is_rescued(text, rule, is_float=is_float)), text


@pytest.mark.parametrize("kind", ["json", "csv", "xml"])
def test_a_schema_is_inferred_from_any_exponent(tmp_path: Path, kind: str) -> None:
    (tmp_path / "in").mkdir()
    texts = ["1e-20000000", "1e999999999", "1e-99999999999999999999", "1e99999999999999999999"]
    (tmp_path / "in" / "1").write_text(_file(kind, [*texts, *LEADING]))
    more = {"rowTag": "row"} if kind == "xml" else {}
    if kind != "csv":
        more |= {"prefersDecimal": "true"}
    options = {"cloudFiles.inferColumnTypes": "true", **more}
    rows = Stream(tmp_path / "in", tmp_path / "state", kind, **options).run()
    assert [float(row["d"]) for row in rows[-3:]] == [0.5, 0, 7]
    for text, row in zip(texts, rows, strict=False):
        rescued = json.loads(row["_rescued_data"] or "{}", parse_float=str)
        assert text in {row["d"], rescued.get("d")}
