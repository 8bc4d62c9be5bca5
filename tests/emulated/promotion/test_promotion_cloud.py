"""Rescued data is promoted, columns are widened and bad records are written in a cloud as well."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from airflow_cloudfiles.engine.files import FileEntry, Offset
from airflow_cloudfiles.engine.formats.base import BadRecord
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.reading.bad_records import BadRecordWriter
from airflow_cloudfiles.engine.reading.splits import BatchContext, FileRange, Split
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.storage.access import to_environment
from tests.support.promoted import Landed


@pytest.fixture(params=["aws", "seaweed", "azurite", "gcs_xml"])
def landed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Landed:
    """A stream whose state and table are in a cloud, the access in the environment."""
    cloud: Any = request.getfixturevalue(request.param)
    for name, value in to_environment(cloud.access).items():
        monkeypatch.setenv(name, value)
    root = cloud.container() if request.param == "azurite" else cloud.bucket()
    return Landed.create(f"{root}/lake/ünï t+1", "id BIGINT, n INT")


def test_a_field_becomes_a_column_and_a_column_wider(landed: Landed) -> None:
    landed.land({"id": 1, "zip": "a", "n": 1}, {"id": 2, "n": 2**40})
    landed.land({"id": 3})
    before = landed.live()
    told = landed.promote({"zip": "STRING"})
    assert (told.rows, told.files_rewritten) == (1, 1)
    assert len(before & landed.live()) == 1
    assert landed.promote({"n": "BIGINT"}).rows == 1
    assert [(row["zip"], row["n"]) for row in landed.rows()] == [
        ("a", 1),
        (None, 2**40),
        (None, None),
    ]
    assert {row["_rescued_data"] for row in landed.rows()} == {None}
    assert landed.log.versions() == [0, 1, 2]
    kind = landed.table.to_pyarrow_dataset().schema.field("n").type
    assert kind == pa.int64()


def test_bad_records_are_there_once(landed: Landed) -> None:  # B76
    source, bad = f"{landed.folder}/landing", f"{landed.folder}/bad"
    options = {"cloudFiles.format": "json", "badRecordsPath": bad}
    context = BatchContext(
        source_uri=source,
        source_name=source,
        state_uri=landed.state,
        schema_uri=None,
        schema_version=-1,
        data_schema="{}",
        partition_schema="{}",
        start=Offset(0, 0),
        end=Offset(1, 0),
        options=CloudFilesOptions.parse(options, path=source),
    )
    uri = open_store(source).child_uri("f ä.json")
    for cuts in ([(0, 10), (10, None)], [(0, None)]):
        for start, end in cuts:
            part = FileRange(FileEntry("f ä.json", 20, 1), start, end)
            writer = BadRecordWriter(Split(context, (part,)))
            for at in (0, 15):
                if start <= at < (end or 20):
                    writer.write([BadRecord(uri, f"at {at}", "none")])
            writer.finish()
    store = open_store(bad)
    lines = [line for each in store.list() for line in store.get(each.path).splitlines()]
    assert [json.loads(line)["record"] for line in lines] == ["at 0", "at 15"]
