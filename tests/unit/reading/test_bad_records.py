"""A record that is none is below `badRecordsPath` once, however often its bytes are read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_cloudfiles.engine.discovery.filters import FileFilter
from airflow_cloudfiles.engine.errors import CorruptedStateError, TargetAccessError
from airflow_cloudfiles.engine.files import FileEntry, Offset
from airflow_cloudfiles.engine.formats.base import BadRecord
from airflow_cloudfiles.engine.intake.opening import own_locations
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.reading import bad_records
from airflow_cloudfiles.engine.reading.bad_records import BadRecordWriter
from airflow_cloudfiles.engine.reading.splits import BatchContext, FileRange, Split
from airflow_cloudfiles.engine.state.metadata import open_metadata
from airflow_cloudfiles.engine.storage import open_store

STREAM = "{}"


def _context(folder: Path, location: str, start: int = 0) -> BatchContext:
    source = folder / "landing"
    options = CloudFilesOptions.parse(
        {"cloudFiles.format": "json", "badRecordsPath": location}, path=str(source)
    )
    state = open_store(str(folder / "state"))
    open_metadata(state, open_store(str(source)).uri, "json")
    return BatchContext(
        source_uri=str(source),
        source_name=str(source),
        state_uri=state.uri,
        schema_uri=None,
        schema_version=-1,
        data_schema=STREAM,
        partition_schema=STREAM,
        start=Offset(start, 0),
        end=Offset(start + 1, 0),
        options=options,
    )


def _record(folder: Path, path: str, text: str) -> BadRecord:
    return BadRecord(open_store(str(folder / "landing")).child_uri(path), text, "not JSON")


def _entry(path: str, size: int = 100, etag: str = "") -> FileEntry:
    return FileEntry(path, size, 1, etag)


def _write(context: BatchContext, ranges: list[FileRange], records: list[BadRecord]) -> None:
    writer = BadRecordWriter(Split(context, tuple(ranges)))
    for record in records:
        writer.write([record])
    writer.finish()


def _found(location: str) -> list[dict[str, str]]:
    store = open_store(location)
    keys = [entry.path for entry in store.list()]
    assert all(key.split("/")[1] == "bad_records" for key in keys)
    return [json.loads(line) for key in keys for line in store.get(key).splitlines()]


@pytest.mark.parametrize("kind", ["disk", "object store"])
def test_a_record_is_there_with_its_file_and_the_reason(tmp_path: Path, kind: str) -> None:  # B76
    location = str(tmp_path / "bad") if kind == "disk" else f"memory://bad-{tmp_path.name}"
    context = _context(tmp_path, location)
    bad = _record(tmp_path, "d/f ä.json", '{"a": caf\\xe9 "\n')
    _write(context, [FileRange(_entry("d/f ä.json")), FileRange(_entry("g.json"))], [bad])
    assert _found(location) == [
        {"path": bad.file_uri, "record": bad.record, "reason": "not JSON"},
    ]
    _write(context, [FileRange(_entry("d/f ä.json")), FileRange(_entry("g.json"))], [bad])
    assert len(_found(location)) == 1, "repeating the task repeats no record"


def test_nothing_is_written_where_nothing_is_bad(tmp_path: Path) -> None:
    _write(_context(tmp_path, str(tmp_path / "bad")), [FileRange(_entry("f.json"))], [])
    assert not (tmp_path / "bad").exists()


def test_many_records_go_to_several_objects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bad_records, "PART_BYTES", 300)
    location = str(tmp_path / "bad")
    records = [_record(tmp_path, "f.json", f"record {i}") for i in range(50)]
    context, ranges = _context(tmp_path, location), [FileRange(_entry("f.json"))]
    _write(context, ranges, records)
    assert len(list((tmp_path / "bad").rglob("*.json"))) > 5
    assert [each["record"] for each in _found(location)] == [each.record for each in records]
    monkeypatch.setattr(bad_records, "PART_BYTES", 10**6)
    _write(context, ranges, records)
    assert len(_found(location)) == 50, "a repetition with larger objects leaves none of the old"


def test_the_records_of_another_batch_file_version_or_stream_are_let_alone(tmp_path: Path) -> None:
    location = str(tmp_path / "bad")
    one = _record(tmp_path, "f.json", "one")
    for context, entry in (
        (_context(tmp_path, location), _entry("f.json")),
        (_context(tmp_path, location, start=1), _entry("f.json")),
        (_context(tmp_path, location), _entry("f.json", etag="2")),
        (_context(tmp_path / "other", location), _entry("f.json")),
    ):
        record = _record(Path(context.source_uri).parent, "f.json", one.record)
        _write(context, [FileRange(entry)], [record])
    assert len(_found(location)) == 4
    other = tmp_path / "bad" / "theirs" / "bad_records" / "part-0.json"
    other.parent.mkdir(parents=True)
    other.write_text("{}\n")
    _write(_context(tmp_path, location), [FileRange(_entry("f.json"))], [one])
    assert other.exists()


CUTS = st.lists(st.integers(1, 99), max_size=5, unique=True).map(sorted)


@pytest.mark.law
@settings(max_examples=60, deadline=None)
@given(
    tries=st.lists(st.tuples(CUTS, st.integers(0, 6)), max_size=4),
    cuts=CUTS,
    bad=st.sets(st.integers(0, 99), max_size=8),
)
def test_a_batch_that_is_cut_otherwise_when_it_is_repeated_repeats_no_record(
    tmp_path_factory: pytest.TempPathFactory,
    tries: list[tuple[list[int], int]],
    cuts: list[int],
    bad: set[int],
) -> None:
    """Some tries read only some of the ranges before they are killed; the last reads all."""
    folder = tmp_path_factory.mktemp("cut")
    location = f"memory://{folder.name}"
    context = _context(folder, location)
    for borders, done in [*tries, (cuts, 100)]:
        starts = [0, *borders]
        ends = [*borders, None]
        for start, end in list(zip(starts, ends, strict=True))[:done]:
            inside = [b for b in sorted(bad) if start <= b < (100 if end is None else end)]
            records = [_record(folder, "f.json", f"at {b}") for b in inside]
            _write(context, [FileRange(_entry("f.json"), start, end)], records)
    assert sorted(each["record"] for each in _found(location)) == sorted(f"at {b}" for b in bad)


def test_bad_records_below_the_source_are_no_input(tmp_path: Path) -> None:
    location = str(tmp_path / "landing" / "bad")
    context = _context(tmp_path, location)
    _write(context, [FileRange(_entry("f.json"))], [_record(tmp_path, "f.json", "x")])
    source = open_store(context.source_uri)
    own = [source.key_of(uri) for uri in own_locations(context.options)]
    assert own == ["bad"]
    wanted = FileFilter(source.uri, None, context.options.discovery, own)
    assert list(source.list(skip=wanted.skip)) == []


def test_a_place_that_fails_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    context = _context(tmp_path, str(tmp_path / "file" / "bad"))
    bad = _record(tmp_path, "f.json", "x")
    with pytest.raises(TargetAccessError, match=r"badRecordsPath .*file/bad.*Grant this identity"):
        _write(context, [FileRange(_entry("f.json"))], [bad])


def test_a_state_that_is_gone_is_reported(tmp_path: Path) -> None:
    context = _context(tmp_path, str(tmp_path / "bad"))
    (tmp_path / "state" / "_source" / "metadata.json").unlink()
    with pytest.raises(CorruptedStateError, match="has lost its metadata"):
        _write(context, [FileRange(_entry("f.json"))], [_record(tmp_path, "f.json", "x")])
