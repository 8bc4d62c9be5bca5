"""A run opens its table in a cloud once, and nevertheless sees what others do to it."""

from __future__ import annotations

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from airflow_cloudfiles.engine.storage.access import to_environment
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from airflow_cloudfiles.engine.tables.delta.opening import open_existing, open_table, opened_once

pytestmark = [pytest.mark.emulator]


@pytest.fixture(params=["aws", "azurite", "gcs_xml"])
def target(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A table of two versions, which the environment gives access to."""
    emulator = request.getfixturevalue(request.param)
    root: str = emulator.container() if request.param == "azurite" else emulator.bucket()
    for name, value in to_environment(emulator.access).items():
        monkeypatch.setenv(name, value)
    found = f"{root}/table"
    append(found, "a")
    append(found, "a")
    return found


def append(target: str, *columns: str) -> None:
    """Append a row as another program does, which may give the table columns."""
    location = DeltaLocation.of(target)
    write_deltalake(
        location.table_uri,
        pa.table({name: [1] for name in columns}),
        mode="append",
        schema_mode="merge",
        storage_options=location.storage_options(),
    )


def remove(target: str) -> None:
    """Delete a table."""
    store = DeltaLocation.of(target).store()
    for entry in list(store.list()):
        store.delete(entry.path)


def test_it_is_the_same_table_with_what_was_committed_meanwhile(target: str) -> None:
    with opened_once():
        first = open_existing(target)
        assert first.version() == 1
        assert open_existing(target) is first
        append(target, "a", "b")
        again = open_existing(target)
        assert again is first
        assert (again.version(), [each.name for each in again.schema().fields]) == (2, ["a", "b"])
        append(target, "a", "c")
        assert open_existing(target).version() == 3
        assert open_existing(target, 1) is not first
    assert open_existing(target) is not first


def test_another_table_at_its_place_is_opened_anew(target: str) -> None:
    with opened_once():
        first = open_existing(target)
        remove(target)
        assert open_table(target) is None
        for _ in range(3):
            append(target, "z")
        found = open_existing(target)
        assert found is not first
        assert (found.version(), found.metadata().id == first.metadata().id) == (2, False)
        # A longer log than the one before, whose entry has the same name.
        remove(target)
        for _ in range(5):
            append(target, "y")
        assert [each.name for each in open_existing(target).schema().fields] == ["y"]


def test_other_credentials_open_it_anew(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened_once():
        first = open_existing(target)
        given = DeltaLocation.storage_options
        monkeypatch.setattr(
            DeltaLocation, "storage_options", lambda self: {**given(self), "timeout": "41s"}
        )
        found = open_existing(target)
        assert found is not first
        assert open_existing(target) is found
