"""The columns of a given schema: in its order, from the records or from the paths."""

from __future__ import annotations

import json
from decimal import Decimal
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType

from airflow_cloudfiles.engine.errors import IncompatibleSchemaError, OptionError
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.schema.ddl import parse_schema
from airflow_cloudfiles.engine.stream import definition
from airflow_cloudfiles.engine.types import to_arrow
from tests.support.landed import Stream
from tests.support.laws import examples, some
from tests.unit.stream.test_every_format import WRITERS, Landing

RESCUE = {"rescuedDataColumn": "_rescued_data"}
HEADER = {"csv": {"header": "true"}}


@pytest.fixture(params=WRITERS)
def landing(request: pytest.FixtureRequest, tmp_path: Path) -> Landing:
    """A folder that takes records in one of the formats."""
    return Landing(request.param, tmp_path)


def given(landing: Landing, ddl: str, **options: Any) -> Stream:
    """The stream of a folder with a schema."""
    return landing.stream(schema=parse_schema(ddl), **{**HEADER.get(landing.format, {}), **options})


def checked(stream: Stream) -> list[dict[str, Any]]:
    """The rows that are outstanding, in batches of exactly the given schema."""
    assert stream.schema is not None
    rows = []
    for task in stream.tasks():
        for batch in task.read():
            assert batch.schema.names == stream.schema.names
            assert batch.schema.equals(to_arrow(stream.schema))
            rows += batch.to_pylist()
    return rows


def test_a_column_in_the_path_has_the_value_of_the_path(landing: Landing) -> None:  # B36
    landing.drop("n=1/day=2024-02-29/1", [{"s": "x"}, {"s": "y"}])
    landing.drop("n=2/day=2024-03-01/1", [{"s": "z"}])
    rows = checked(given(landing, "n BIGINT, s STRING, day STRING"))
    assert rows == [
        {"n": 1, "s": "x", "day": "2024-02-29"},
        {"n": 1, "s": "y", "day": "2024-02-29"},
        {"n": 2, "s": "z", "day": "2024-03-01"},
    ]


def test_a_file_whose_path_lacks_the_key_has_the_field_of_its_records(landing: Landing) -> None:
    landing.drop("1", [{"n": 5, "s": "x"}])
    landing.drop("N=1/2", [{"s": "y"}])
    landing.drop("n=__HIVE_DEFAULT_PARTITION__/3", [{"s": "z"}])
    rows = given(landing, "n BIGINT, s STRING").run(parallelism=1)
    assert sorted((row["s"], row["n"]) for row in rows) == [("x", 5), ("y", 1), ("z", None)]


def test_the_value_of_the_path_wins_and_that_of_the_record_is_rescued(landing: Landing) -> None:
    landing.drop("n=1/1", [{"n": 5, "s": "x"}])
    assert checked(given(landing, "n BIGINT, s STRING")) == [{"n": 1, "s": "x"}]
    [row] = checked(given(landing, "_rescued_data STRING, n BIGINT, s STRING", **RESCUE))
    assert (row["n"], row["s"]) == (1, "x")
    assert str(json.loads(row["_rescued_data"])["n"]) == "5"


@pytest.mark.slow
@pytest.mark.parametrize("named", [False, True])
def test_the_columns_are_in_the_order_of_the_schema(landing: Landing, named: bool) -> None:
    landing.drop("n=1/1", [{"a": 7, "s": "x"}])
    options = {"cloudFiles.partitionColumns": "n"} if named else {}
    columns = ("n INT", "a BIGINT", "s STRING", "_rescued_data STRING", "_corrupt_record STRING")
    orders = [*permutations(columns)]
    for order in some(orders, examples(len(orders)), name=f"{landing.format} {named}"):
        stream = given(landing, ", ".join(order), **RESCUE, **options)
        [row] = checked(stream)
        assert row == {"n": 1, "a": 7, "s": "x", "_rescued_data": None, "_corrupt_record": None}


def test_a_value_of_a_path_that_does_not_fit_is_never_silently_gone(landing: Landing) -> None:
    landing.drop("n=q/1", [{"s": "x"}])
    with pytest.raises(IncompatibleSchemaError, match=r"n=q, which does not fit column n .*int"):
        checked(given(landing, "n INT, s STRING"))
    [row] = checked(given(landing, "n INT, _rescued_data STRING, s STRING", **RESCUE))
    assert (row["n"], row["s"], json.loads(row["_rescued_data"])["n"]) == (None, "x", "q")


@pytest.mark.parametrize(
    "options", [{"cloudFiles.partitionColumns": ""}, {"recursiveFileLookup": "true"}]
)
def test_paths_have_no_columns_where_they_are_switched_off(
    landing: Landing, options: dict[str, str]
) -> None:  # B43
    landing.drop("n=1/1", [{"n": 5, "s": "x"}])
    assert checked(given(landing, "n BIGINT, s STRING", **options)) == [{"n": 5, "s": "x"}]


def test_a_nested_column_is_never_in_a_path(tmp_path: Path) -> None:
    landing = Landing("json", tmp_path)
    landing.drop("n=1/1", [{"n": [5], "s": "x"}])
    assert checked(given(landing, "n ARRAY<INT>, s STRING")) == [{"n": [5], "s": "x"}]


def test_a_csv_file_without_a_header_has_the_columns_that_are_not_in_its_path(
    tmp_path: Path,
) -> None:
    landing = Landing("csv", tmp_path)
    landing.put("n=1/1", b"x,2\n")
    landing.put("2", b"7,y,3\n")
    rows = given(landing, "n INT, s STRING, t INT", header="false").run()
    assert sorted((row["n"], row["s"], row["t"]) for row in rows) == [(1, "x", 2), (7, "y", 3)]


def test_text_has_columns_in_its_paths(tmp_path: Path) -> None:  # B14
    landing = Landing("text", tmp_path)
    landing.put("n=1/1", b"x\ny\n")
    landing.put("2", b"z\n")
    rows = checked(given(landing, "n INT, value STRING, m STRING"))
    assert rows == [
        {"n": n, "value": value, "m": None} for n, value in ((None, "z"), (1, "x"), (1, "y"))
    ]


def test_binary_files_have_columns_in_their_paths(tmp_path: Path) -> None:  # B14
    landing = Landing("binaryFile", tmp_path)
    landing.put("n=1/1", b"x")
    rows = checked(given(landing, "content BINARY, n INT, length BIGINT"))
    assert rows == [{"content": b"x", "n": 1, "length": 1}]


@pytest.mark.parametrize("name", ["json", "csv", "text"])
def test_files_with_other_columns_in_their_paths_are_read_in_one_task(
    tmp_path: Path, name: str
) -> None:
    landing = Landing(name, tmp_path)
    for place in range(40):
        folder = ["", "a=1/", "b=2/", "a=3/b=4/"][place % 4]
        content = f'{{"v":"{place}"}}\n' if name == "json" else f"{place}\n"
        landing.put(f"{folder}{place}", content.encode())
    value = "value" if name == "text" else "v"
    stream = given(landing, f"a INT, {value} STRING, b INT")
    if name == "csv":
        stream = landing.stream(schema=parse_schema("a INT, v STRING, b INT"), header="false")
    rows = stream.run(parallelism=1)
    assert len(stream.counts) == 1
    assert stream.counts[0].rows == 40
    if name == "csv":  # by position: what is not in the path comes first
        found = {int(row["v"] or row["a"]) for row in rows}
        assert found == set(range(40))
        return
    expected = {0: (None, None), 1: (1, None), 2: (None, 2), 3: (3, 4)}
    for row in rows:
        assert (row["a"], row["b"]) == expected[int(row[value]) % 4]


def test_a_schema_without_its_rescued_data_column_is_refused() -> None:
    options = CloudFilesOptions.parse(
        {"cloudFiles.format": "json", **RESCUE}, has_schema=True, path="/landing"
    )
    with pytest.raises(OptionError, match=r"lacks the rescued data column _rescued_data"):
        definition.given_schema(parse_schema("a INT"), options)
    given = definition.given_schema(parse_schema("_rescued_data STRING, a INT"), options)
    assert given.full_schema(options) == parse_schema("_rescued_data STRING, a INT")
    assert given.data_schema == StructType.fromJson(parse_schema("a INT").jsonValue())


def test_values_of_paths_are_read_as_those_of_records_are(tmp_path: Path) -> None:
    landing = Landing("json", tmp_path)
    landing.drop("active=false/t=2024-07-05 10:00:00/d=2024-1-5/m=1.005/f", [{"a": "1"}])
    schema = "a STRING, active BOOLEAN, t TIMESTAMP, d DATE, m DECIMAL(10,2)"
    [row] = given(landing, schema, timeZone="America/New_York").run()
    assert (row["active"], row["m"]) == (False, Decimal("1.01"))
    assert (row["t"].isoformat(), row["d"].isoformat()) == (
        "2024-07-05T14:00:00+00:00",
        "2024-01-05",
    )


def test_a_value_of_a_path_that_does_not_fit_exactly_is_rescued(tmp_path: Path) -> None:
    landing = Landing("csv", tmp_path)
    landing.put("on=false/m=1.005/f", b"x\n1\n")
    schema = "x STRING, on BOOLEAN, m DECIMAL(10,2), _rescued_data STRING"
    [row] = given(landing, schema, **RESCUE).run()
    assert (row["on"], row["m"]) == (False, None)
    assert json.loads(row["_rescued_data"])["m"] == "1.005"


def test_a_row_whose_path_is_rescued_is_counted_once(landing: Landing) -> None:
    """Whoever looks at counts alone sees it, whether the record had more to rescue or not."""
    for number, (path, value) in enumerate((("p=x", "1"), ("p=y", "no number"), ("p=3", "2"))):
        landing.put(f"{path}/{number}", WRITERS[landing.format]([{"a": value}]))
    stream = given(landing, "a INT, p INT, _rescued_data STRING", **RESCUE)
    rows = stream.run()
    rescued = [row for row in rows if row["_rescued_data"] is not None]
    assert len(rescued) == sum(each.rescued_rows for each in stream.counts)
    assert len(rescued) >= 2
