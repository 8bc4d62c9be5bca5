"""A source is at another place: what is known stays known, and what is new is ingested."""

from __future__ import annotations

import pytest

from airflow_cloudfiles.engine.errors import (
    OptionError,
    SourceNotFoundError,
    StateConflictError,
    StateError,
    StateLockedError,
    StateMovedError,
)
from airflow_cloudfiles.engine.extensions.transfer.relocate import relocate_source
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.state.locks.run_lock import RunLock
from airflow_cloudfiles.engine.state.metadata import open_metadata, read_metadata
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.stream.definition import resolve_schema
from tests.support.crash_points import RELOCATION_POINTS
from tests.support.transferred import Stream, killed


@pytest.fixture
def stream(tmp_path, monkeypatch):
    monkeypatch.setenv("CLOUDFILES_CACHE_DIR", str(tmp_path / "cache"))
    return Stream(tmp_path)


def test_known_files_are_not_ingested_again_and_new_ones_are(stream, tmp_path):
    new = stream.copied(tmp_path / "moved")
    new.write("2026/c.json")
    told = relocate_source(stream.state, new.uri, dry_run=True)
    assert (told.is_done, told.known_and_there, told.known_and_missing, told.new) == (
        False,
        2,
        0,
        1,
    )
    assert stream.works(stream.state)  # a dry run changes nothing
    assert relocate_source(stream.state, new.uri).is_done
    assert read_metadata(open_store(stream.state)).source == new.uri
    with pytest.raises(StateConflictError, match="moved"):
        stream.open(stream.state)
    assert stream.ingest(stream.state, new.uri) == ("2026/c.json",)
    assert stream.ingest(stream.state, new.uri) == ()


def test_a_place_without_the_files_is_refused_unless_they_are_gone_on_purpose(stream, tmp_path):
    new = stream.copied(tmp_path / "moved")
    (new.folder / "2026" / "a.json").unlink()
    with pytest.raises(
        StateError, match=r"1 of 2 recorded files is .*2026/a\.json.*--allow-missing"
    ):
        relocate_source(stream.state, new.uri)
    with pytest.raises(SourceNotFoundError):
        relocate_source(stream.state, str(tmp_path / "none"))
    assert stream.works(stream.state)
    done = relocate_source(stream.state, new.uri, allow_missing=True)
    assert (done.known_and_there, done.known_and_missing) == (1, 1)
    assert done.missing_examples == ("2026/a.json",)


def test_a_sample_is_looked_for_instead_of_listing(stream, tmp_path):
    new = stream.copied(tmp_path / "moved")
    told = relocate_source(stream.state, new.uri, dry_run=True, sample=1)
    assert (told.known_and_there, told.known_and_missing, told.new) == (1, 0, None)
    told = relocate_source(stream.state, str(tmp_path / "none"), dry_run=True, sample=10)
    assert (told.known_and_there, told.known_and_missing) == (0, 2)
    assert set(told.missing_examples) == {"2026/a.json", "2026/b.json"}


def test_with_overwrites_the_versions_at_the_new_place_are_known(stream, tmp_path):
    new = stream.copied(tmp_path / "moved")
    assert relocate_source(stream.state, new.uri, dry_run=True).other_versions == 2
    done = relocate_source(stream.state, new.uri, allow_overwrites=True)
    assert done.adopted == 2
    assert stream.ingest(stream.state, new.uri, allow_overwrites=True) == ()
    new.write("2026/a.json", b"another content")
    assert stream.ingest(stream.state, new.uri, allow_overwrites=True) == ("2026/a.json",)


def test_files_that_wait_are_ingested_first(stream, tmp_path):
    stream.zone.write("waits.json")
    stream.open(stream.state).discover()
    new = stream.copied(tmp_path / "moved")
    with pytest.raises(StateError, match=r"1 recorded file .* waits to be ingested"):
        relocate_source(stream.state, new.uri)
    stream.ingest(stream.state)
    assert relocate_source(stream.state, new.uri).is_done


def test_what_makes_no_sense_is_refused(stream, tmp_path):
    with pytest.raises(OptionError, match="is the source that the state has"):
        relocate_source(stream.state, stream.zone.uri)
    with pytest.raises(OptionError, match="pattern"):
        relocate_source(stream.state, str(tmp_path / "moved" / "*" / "x"))
    with RunLock(open_store(stream.state)), pytest.raises(StateLockedError):
        relocate_source(stream.state, str(tmp_path / "moved"))
    with pytest.raises(StateError, match="no state"):
        relocate_source(str(tmp_path / "nothing"), stream.zone.uri)
    open_metadata(open_store(str(tmp_path / "unbound")), "file:///typo", "json")
    with pytest.raises(StateError, match="holds no file yet"):
        relocate_source(str(tmp_path / "unbound"), stream.zone.uri)


def test_a_source_may_be_relocated_again_and_back(stream, tmp_path):
    new = stream.copied(tmp_path / "moved")
    relocate_source(stream.state, new.uri)
    stream.ingest(stream.state, new.uri)
    relocate_source(stream.state, stream.zone.uri)
    stream.zone.write("c.json")
    assert stream.ingest(stream.state) == ("c.json",)


def test_whoever_has_opened_the_state_before_records_nothing_more(stream, tmp_path):
    """With overwrites it would take every file of the old place for another version."""
    early, late = (stream.open(stream.state, allow_overwrites=True) for _ in range(2))
    early.discover()
    new = stream.copied(tmp_path / "moved")
    relocate_source(stream.state, new.uri, allow_overwrites=True)
    stream.zone.write("c.json")
    for intake in (early, late):
        with pytest.raises(StateMovedError):
            intake.discover()
    assert stream.recorded(stream.state, new.uri) == ["2026/a.json", "2026/b.json"]


def test_an_index_that_others_have_brought_up_to_date_misleads_nobody(stream, tmp_path):
    """Who opened the state before does not read the last entry then: the mark shows it."""
    late = stream.open(stream.state)
    new = stream.copied(tmp_path / "moved")
    relocate_source(stream.state, new.uri)
    new.write("behind.json")
    other = stream.open(stream.state, new.uri)
    other.discover()
    late._ledger = other._ledger
    stream.zone.write("c.json")
    with pytest.raises(StateMovedError):
        late.discover()
    recorded = stream.recorded(stream.state, new.uri)
    assert recorded == ["2026/a.json", "2026/b.json", "behind.json"]


@pytest.mark.parametrize("point", RELOCATION_POINTS)
def test_killed_anywhere_it_is_repeated(stream, tmp_path, point):
    new = stream.copied(tmp_path / "moved")
    killed(point, "relocate", stream.state, new.uri)
    for source in (stream.zone.uri, new.uri):
        with pytest.raises(StateMovedError, match=r"being relocated to .*moved.* Repeat"):
            stream.open(stream.state, source)
    with pytest.raises(StateMovedError, match="Finish that first"):
        relocate_source(stream.state, str(tmp_path / "elsewhere"))
    relocate_source(stream.state, new.uri, allow_overwrites=True)
    new.write("c.json")
    assert stream.ingest(stream.state, new.uri, allow_overwrites=True) == ("c.json",)


@pytest.mark.parametrize("is_apart", [False, True])
def test_the_schema_log_knows_both_names(stream, tmp_path, is_apart):
    schemas = str(tmp_path / "schemas") if is_apart else None

    def options(source: str) -> CloudFilesOptions:
        given = {"cloudFiles.format": "json", "checkpointLocation": stream.state}
        if schemas:
            given["cloudFiles.schemaLocation"] = schemas
        return CloudFilesOptions.parse(given, path=source)

    stream.zone.write("z.json", b'{"a": 1}')
    stream.ingest(stream.state)
    before = resolve_schema(options(stream.zone.uri))
    new = stream.copied(tmp_path / "moved")
    relocate_source(stream.state, new.uri, schema_location=schemas)
    after = resolve_schema(options(new.uri))
    assert (after.version, after.data_schema) == (before.version, before.data_schema)
    other = stream.copied(tmp_path / "other")
    with pytest.raises(StateConflictError):
        resolve_schema(options(other.uri))
