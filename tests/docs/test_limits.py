"""What the page of limits calls missing is refused by the package, with the code on the page."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from pathlib import Path

import fastavro
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow import orc

from airflow_cloudfiles import cli
from tests.docs.pages import ROOT, table_rows
from tests.support.archive_files import zip_of
from tests.support.delta_tables import OLD, HandMadeTable, features
from tests.support.iceberg_tables import LocalCatalog
from tests.unit.formats.test_encrypted_parquet import write_encrypted

pytestmark = pytest.mark.slow

PAGE = ROOT / "docs/reference/limits.md"
ROWS = {cells[0]: cells for cells in table_rows(PAGE) if "CF" in cells[1]}

Change = Callable[[Path], dict[str, str]]
"""Prepares a folder, and gives what is changed of an ingest that would work."""


def _from(name: str, write: Callable[[Path], object], **more: str) -> Change:
    """Put a file beside the one that is there."""

    def change(folder: Path) -> dict[str, str]:
        source = folder / "source"
        source.mkdir()
        write(source / name)
        return {"source": str(source), **more}

    return change


def _into(*, column: dict[str, object] | None = None, feature: str = "") -> Change:
    """Make a table with a column, or with a feature."""

    def change(folder: Path) -> dict[str, str]:
        made = HandMadeTable(folder / "other")
        simple = {"name": "a", "type": "string", "nullable": True, "metadata": column or {}}
        protocol = features(writer=("appendOnly", feature)) if feature else OLD
        made.create(columns=[simple], protocol=protocol)
        return {"target": str(made.folder)}

    return change


def _constrained(folder: Path) -> dict[str, str]:
    target = str(folder / "other")
    write_deltalake(target, pa.table({"a": ["1"]}))
    DeltaTable(target).alter.add_constraint({"positive": "a > '0'"})
    return {"target": target}


def _seven_zip(path: Path) -> None:
    path.write_bytes(b"7z\xbc\xaf\x27\x1c\x00\x04" + bytes(24))


def _nested(path: Path) -> None:
    path.write_bytes(zip_of([("1.json", b'{"a": 1}'), ("2.zip", b"")]))


def _encrypted_zip(path: Path) -> None:
    content = bytearray(zip_of([("1.json", b'{"a": 1}')]))
    content[content.index(b"PK\x01\x02") + 8] |= 1  # as its directory says
    path.write_bytes(content)


def _recursive(path: Path) -> None:
    node = {"type": "record", "name": "N", "fields": [{"name": "n", "type": ["null", "N"]}]}
    with path.open("wb") as file:
        fastavro.writer(file, node, [{"n": None}])


def _never(path: Path) -> None:
    times = pa.array([datetime(9999, 12, 31)], pa.timestamp("us"))  # noqa: DTZ001 - no zone
    orc.write_table(pa.table({"a": times}), path)


def _option(name: str, value: str, format_name: str = "json", **more: str) -> Change:
    return lambda _: {"format": format_name, "option": f"{name}={value}", **more}


CHANGES: dict[str, list[Change]] = {
    "a location on HDFS": [lambda _: {"source": "hdfs://name/orders"}],
    "a location on DBFS": [lambda _: {"source": "dbfs:/orders"}],
    "a state or a table on an SFTP server": [
        lambda _: {"checkpoint-location": "sftp://host/state"},
        lambda _: {"target": "sftp://host/table"},
    ],
    "a state or a table in a directory bucket of S3": [
        lambda _: {"checkpoint-location": "s3://acme--use1-az4--x-s3/state"},
        lambda _: {"target": "s3://acme--use1-az4--x-s3/table"},
    ],
    "notifications for a local folder": [_option("cloudFiles.useNotifications", "true")],
    "an archive of another kind than [zip and tar](../how-to/archives.md): `.7z`, `.rar`": [
        _from("2.7z", _seven_zip)
    ],
    "an archive in an archive": [_from("2.zip", _nested)],
    "an encrypted zip archive": [_from("2.zip", _encrypted_zip)],
    "Avro with a recursive type": [_from("1.avro", _recursive, format="avro")],
    "the option `avroSchema`": [_option("avroSchema", "{}", "avro")],
    "an encrypted Parquet file": [
        _from(
            "1.parquet",
            lambda path: write_encrypted(path, plaintext_footer=True, columns=["a"]),
            format="parquet",
        )
    ],
    "an ORC timestamp before 1677 or after 2262": [_from("1.orc", _never, format="orc")],
    "a hint of the type VARIANT": [_option("cloudFiles.schemaHints", "a VARIANT")],
    "`singleVariantColumn` for CSV, Excel, Avro or ORC": [
        _option("singleVariantColumn", "v", name) for name in ("csv", "orc")
    ],
    "a Delta table by its name in a catalog": [lambda _: {"target": "main.sales.orders"}],
    "a Delta table below a path with `%` and two hexadecimal digits": [
        lambda folder: {"target": str(folder / "a%41")}
    ],
    "a Delta table with constraints, or clustered": [_constrained, _into(feature="clustering")],
    "a Delta table with generated, identity or default columns": [
        _into(column={"delta.generationExpression": "b + 1"}),
        _into(column={"delta.identity.start": 1}),
        _into(column={"CURRENT_DEFAULT": "5"}),
    ],
    "the change data feed of a Delta table": [
        lambda folder: (
            _constrained(folder)
            and {
                "source": str(folder / "other"),
                "format": "delta",
                "option": "readChangeFeed=true",
            }
        )
    ],
    "an Iceberg table as a source": [
        lambda _: {"source": "iceberg://lake/db/orders"},
    ],
}


ICEBERG_VERSION = "an Iceberg table of another format version than 2"


def test_each_row_has_its_attempt() -> None:
    assert set(ROWS) == {*CHANGES, ICEBERG_VERSION}


@pytest.mark.parametrize(
    ("row", "number"), [(row, number) for row in CHANGES for number in range(len(CHANGES[row]))]
)
def test_what_the_page_calls_refused_is(
    row: str, number: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _refused(row, tmp_path, CHANGES[row][number](tmp_path), capsys)


def test_an_ingest_without_a_change_works(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _ingest(tmp_path, {}) == 0
    assert "rows: 1" in capsys.readouterr().out


def test_another_format_version_of_iceberg_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(LocalCatalog(tmp_path)) as lake:
        schema = pa.schema({"a": pa.string()})
        lake.catalog.create_table(("db", "t"), schema, properties={"format-version": "1"})
        _refused(ICEBERG_VERSION, tmp_path, {"target": lake.uri("t")}, capsys)


def _refused(
    row: str, folder: Path, changes: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert _ingest(folder, changes) != 0
    told = capsys.readouterr().err
    code = ROWS[row][1][1:6]
    assert f"[{code}] More" in told, told


def _ingest(folder: Path, changes: dict[str, str]) -> int:
    """Ingest one file without Spark, but for what is changed."""
    landing = folder / "landing"
    landing.mkdir()
    (landing / "1.json").write_text('{"a": "1"}\n')
    given = {
        "source": str(landing),
        "format": "json",
        "checkpoint-location": str(folder / "state"),
        "target": str(folder / "table"),
        "engine": "local",
        **changes,
    }
    return cli.main(["ingest", *(f"--{name}={value}" for name, value in given.items())])
