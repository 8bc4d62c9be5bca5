"""A large sample is read until it tells nothing new, and every file of it at its beginning."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql.types import DataType

from airflow_cloudfiles.engine import inference as sampling
from airflow_cloudfiles.engine.errors import FileUnreadableError
from airflow_cloudfiles.engine.formats.excel import workbook
from airflow_cloudfiles.engine.formats.json import document
from airflow_cloudfiles.engine.formats.xml import rows as xml_rows
from airflow_cloudfiles.engine.formats.xml import rows as xml_source
from airflow_cloudfiles.engine.inference import Sample, infer_files, learn_sample
from airflow_cloudfiles.engine.job import run as job
from airflow_cloudfiles.engine.job.spark_command import LAUNCHED, WITHOUT_SPARK
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.reading import opened
from airflow_cloudfiles.engine.reading.fetch import FetchCounts
from airflow_cloudfiles.engine.storage import open_store
from tests.support.formats.excel_files import xlsx
from tests.support.ingested import Ingested

BLOCK = 2_000
QUIET = 10_000
RECORDS = 4_000

Records = list[dict[str, int | float]]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "QUIET_BYTES", QUIET)
    monkeypatch.setattr(opened, "TEXT_BYTES", BLOCK)
    monkeypatch.setattr(document, "BATCH_BYTES", BLOCK)
    monkeypatch.setattr(workbook, "_MOST_ROWS", BLOCK // 10)
    monkeypatch.setattr(xml_source, "CHUNK_BYTES", BLOCK)
    for name in ("CHUNK_BYTES", "_LARGEST_CHUNK"):
        monkeypatch.setattr(xml_rows, name, BLOCK)


def _json(records: Records) -> bytes:
    return b"".join(json.dumps(each).encode() + b"\n" for each in records)


def _csv(records: Records) -> bytes:
    names = sorted({name for each in records for name in each})
    lines = [",".join(str(each.get(name, "")) for name in names) for each in records]
    return "\n".join([",".join(names), *lines, ""]).encode()


def _csv_without_header(records: Records) -> bytes:
    return "".join(",".join(map(str, each.values())) + "\n" for each in records).encode()


def _xml(records: Records) -> bytes:
    rows = (
        "".join(f"<{name}>{value}</{name}>" for name, value in each.items()) for each in records
    )
    return f"<rows>{''.join(f'<row>{row}</row>' for row in rows)}</rows>".encode()


def _excel(records: Records) -> bytes:
    return xlsx({"Sheet1": [["a"], *([each["a"]] for each in records)]})


FORMATS: dict[str, tuple[Callable[[Records], bytes], dict[str, str]]] = {
    "json": (_json, {}),
    "json.gz": (lambda records: gzip.compress(_json(records), 0), {}),
    "json document": (lambda records: json.dumps(records).encode(), {"multiLine": "true"}),
    "csv": (_csv, {"header": "true"}),
    "csv lines": (_csv_without_header, {"header": "false"}),
    "xml": (_xml, {"rowTag": "row"}),
    "excel": (_excel, {"headerRows": "1"}),
}
USUAL: Records = [{"a": 1}]
NEWS: Records = [{"a": 1.5}]


def _sample(folder: Path, name: str = "json", *, whole: bool = False, **given: str) -> Sample:
    kind = name.replace(".", " ").split()[0]
    options = {"cloudFiles.format": kind, "cloudFiles.inferColumnTypes": "true", **given}
    options |= FORMATS[name][1]
    store = open_store(str(folder))
    files = sorted(store.list(), key=lambda file: file.path)
    parsed = CloudFilesOptions.parse(options, path=str(folder))
    return Sample(store, files, parsed, is_read_whole=whole)


def _first_type(sample: Sample) -> DataType:
    return learn_sample(sample, FetchCounts()).fields[0].dataType


@pytest.mark.parametrize("name", FORMATS)
def test_after_enough_that_is_not_new_only_beginnings_are_read(tmp_path: Path, name: str) -> None:
    write, _ = FORMATS[name]
    suffix = ".json.gz" if name == "json.gz" else ""
    (tmp_path / f"0{suffix}").write_bytes(write(USUAL * RECORDS))
    (tmp_path / f"1{suffix}").write_bytes(write(USUAL * RECORDS + NEWS))
    late, usual = (
        _first_type(_sample(tmp_path, name, whole=True)),
        _first_type(_sample(tmp_path, name)),
    )
    assert usual != late, "the end of a file was read"
    (tmp_path / f"2{suffix}").write_bytes(write(NEWS + USUAL * RECORDS))
    assert _first_type(_sample(tmp_path, name)) == late, "the beginning of a file was not read"


def test_what_is_new_makes_more_be_read(tmp_path: Path) -> None:
    within = QUIET // len(_json(USUAL)) - 100
    parts = [[{f"new{each}": 1}, *USUAL * within] for each in range(5)]
    (tmp_path / "0").write_bytes(_json([record for part in parts for record in part]))
    assert len(learn_sample(_sample(tmp_path), FetchCounts()).fields) == 6


def test_a_file_that_is_read_in_part_counts_as_a_whole(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(5):
        (tmp_path / str(number)).write_bytes(_json(USUAL * RECORDS))
    size = sum(file.stat().st_size for file in tmp_path.iterdir())
    sample = _sample(tmp_path)
    with caplog.at_level("INFO"):
        found = infer_files(sample.store, sample.files, sample.options)
    assert (found.files, found.bytes) == (5, size)
    assert "10 kB in a row showed nothing new: not all of the sample was read" in caplog.text


def test_a_small_sample_is_read_whole(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "0").write_bytes(_json([*USUAL * 100, *NEWS]))
    with caplog.at_level("INFO"):
        learned = learn_sample(_sample(tmp_path), FetchCounts())
    assert learned.fields[0].dataType.simpleString() == "double"
    assert "showed nothing new" not in caplog.text


def test_a_damaged_file_is_named_unless_it_is_to_be_passed_over(tmp_path: Path) -> None:
    (tmp_path / "0").write_bytes(_json(USUAL))
    (tmp_path / "damaged.json.gz").write_bytes(gzip.compress(b'{"z": 1}\n' * 1000)[:-30])
    with pytest.raises(FileUnreadableError, match=r"damaged\.json\.gz"):
        learn_sample(_sample(tmp_path), FetchCounts())
    counts = FetchCounts()
    learn_sample(_sample(tmp_path, ignoreCorruptFiles="true"), counts)
    assert (counts.files, counts.corrupt_files) == (1, 1)


def test_a_file_that_is_gone_is_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(3):
        (tmp_path / str(number)).write_bytes(_json(USUAL))
    sample = _sample(tmp_path)
    (tmp_path / "1").unlink()
    found = infer_files(sample.store, sample.files, sample.options)
    assert found.files == 2
    assert "1 file of the sample is gone" in caplog.text


@pytest.mark.parametrize("ahead", ["true", "false"])
def test_a_field_that_the_sample_lacks_is_the_next_version_and_no_row_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: str
) -> None:
    monkeypatch.setenv(LAUNCHED, WITHOUT_SPARK)
    stream = Ingested(
        tmp_path, **{"cloudFiles.maxFilesPerTrigger": "9", "cloudFiles.evolveAhead": ahead}
    )
    usual = [{"a": f"{each}"} for each in range(RECORDS)]
    for number in range(2):
        content = _json([*usual, {"a": "last", f"late{number}": "x"}])
        (stream.source / f"{number}.json").write_bytes(content)
        os.utime(stream.source / f"{number}.json", (1_700_000_000, 1_700_000_000 + number))
    assert "late" in job.run(stream.spec())["error"]["message"]
    report = job.run(stream.spec())  # one failing try for the fields of all files (B47)
    assert report["rows"] == 2 * (RECORDS + 1)
    assert sorted(stream.rows()) == sorted(2 * [*(each["a"] for each in usual), "last"])
    assert report["schema_version"] == 1


def test_values_that_the_sample_lacks_are_rescued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LAUNCHED, WITHOUT_SPARK)
    stream = Ingested(tmp_path, **{"cloudFiles.inferColumnTypes": "true"})
    (stream.source / "0.json").write_bytes(_json(USUAL * RECORDS + NEWS))
    report = job.run(stream.spec())
    assert (report["rows"], report["rescued_rows"]) == (RECORDS + 1, 1)
