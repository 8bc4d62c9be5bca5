"""The forms that entries of the file log and the metadata may have, and what belongs to them."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, get_args

from airflow_cloudfiles.engine.extensions.transfer.archived import MANIFEST, write_archive
from airflow_cloudfiles.engine.extensions.transfer.move import fence
from airflow_cloudfiles.engine.files import START, FileCounts, FileEntry, Offset, RecordError
from airflow_cloudfiles.engine.intake.ledger.changed import (
    PACKED,
    PackedNote,
    encode_notes,
    read_packed,
)
from airflow_cloudfiles.engine.schema.log_entry import KEY as SOURCES
from airflow_cloudfiles.engine.schema.log_entry import add_name, names_of
from airflow_cloudfiles.engine.state.batch_states import (
    CleanedFiles,
    CleaningHistory,
    read_archived,
    write_archived,
)
from airflow_cloudfiles.engine.state.file_log import FileBatch, FileLog
from airflow_cloudfiles.engine.state.file_results import FileResults, read_results, write_results
from airflow_cloudfiles.engine.state.metadata import KEY
from airflow_cloudfiles.engine.state.metadata_format import (
    FORMAT_VERSION,
    StateStanding,
    StreamMetadata,
    decode_standing,
    encode_metadata,
    encode_standing,
)
from airflow_cloudfiles.engine.state.operations import Action, Operation, announce, announced
from airflow_cloudfiles.engine.state.packs import Packs
from airflow_cloudfiles.engine.storage import ObjectStore
from tests.golden.kinds import CREATED, ID, Format, in_store, new_store, stamped, written

FIRST, SECOND = f"_source/files/{0:020}", f"_source/files/{1:020}"
CONTENT = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
PLAIN = FileBatch((FileEntry("a b.json", 3, 5, "etag"),))
KNOWN_BY_CONTENT = FileBatch(
    (FileEntry("a b.json", 3, 5, "etag", CONTENT), FileEntry("not-utf8-\udcff", 3, 2, "", CONTENT))
)
METADATA = StreamMetadata(ID, "file:///in", "json")
BY_CONTENT = replace(METADATA, format_version=3, file_identity="content")
WITH_OPERATIONS = replace(METADATA, format_version=4, fence=7)
WITH_QUARANTINE = replace(METADATA, format_version=5)
UNBOUND = replace(METADATA, is_bound=False)
ARCHIVED = CleaningHistory(
    marks=(CleanedFiles(Offset(3, 1), datetime(2026, 1, 1, tzinfo=UTC), "MOVE", "s3://lake/done"),),
    named={("é.json", 3, 5, "etag"): "é-1.json"},
    start=START,
)
BAD = RecordError("é fits no column", "a.b", 7)
READ_OF_FILES = {
    (3, 1): 2,
    (3, 2): 2,
    (3, 3): FileCounts(60, 2, 1, 1, "", BAD),
    (3, 5): 3,
    (4, 0): FileCounts(skipped="missing"),
}

PACKED_NOTES = {
    f"{'0f' * 16}-7.json": PackedNote(1_767_225_600_000_001, 1_767_312_000_000_000),
    f"{'0f' * 16}-7.reported": PackedNote(1_767_225_600_000_002, 1_767_312_000_000_000),
    f"{'0f' * 16}-{'a1' * 8}.read": PackedNote(1_767_225_600_000_000, 1_767_312_000_000_000),
}


def _metadata(version: int, metadata: StreamMetadata) -> Format:
    return Format(
        name="metadata",
        keys=r"_source/metadata\.json",
        version=version,
        understood=FORMAT_VERSION,
        write=lambda: encode_metadata(metadata),
        read=lambda content: decode_standing(content, name=KEY)[2],
        expected=metadata,
    )


def _standing(standing: StateStanding) -> Format:
    place = None if standing == "unbound" else "s3://lake/state"
    metadata = {"incoming": None, "unbound": UNBOUND}.get(standing, METADATA)
    return Format(
        name=f"metadata_{standing}",
        keys=r"_source/metadata\.json",
        version=9,
        understood=FORMAT_VERSION,
        write=lambda: encode_standing(standing, metadata, place),
        read=lambda content: decode_standing(content, name=KEY),
        expected=(standing, place or "", metadata),
    )


def _entry(name: str, batch: FileBatch, **more: Any) -> Format:
    def append(store: ObjectStore) -> None:
        assert FileLog(store, more.get("unbound")).append(0, batch)

    return Format(
        name=f"files_{name}",
        keys=r"_source/files/[0-9]{20}",
        write=lambda: written(FIRST, append),
        read=in_store(FIRST, lambda store: FileLog(store).read(0)),
        expected=more.get("expected", batch),
    )


def _operation(action: Action) -> Format:
    operation = Operation(
        action,
        reason="é",
        excluded=(Offset(0, 0),),
        former=(Offset(0, 1),),
        path_column=("_metadata", "file_path"),
        key="k",
    )
    batch = FileBatch(PLAIN.files, action, operation=operation)

    def append(store: ObjectStore) -> None:
        assert FileLog(store).append(0, KNOWN_BY_CONTENT)
        assert FileLog(store).append(1, batch)

    def read(store: ObjectStore) -> object:
        return FileLog(store).read(1)

    kept = replace(operation, number=1, created=CREATED)
    return Format(
        name=f"files_{action}",
        keys=r"_source/files/[0-9]{20}",
        write=lambda: written(SECOND, append),
        read=in_store(SECOND, read),
        expected=replace(batch, operation=kept),
    )


def _fenced() -> bytes:
    store = new_store()
    fence(store, METADATA, "s3://lake/state")
    return stamped(store.get(FIRST))


def _bind(store: ObjectStore) -> None:
    store.put(KEY, encode_metadata(UNBOUND))
    assert FileLog(store, UNBOUND).append(0, PLAIN)


def _manifest() -> bytes:
    """What an archive says of itself; its other members are the objects as they are."""
    content = io.BytesIO()
    write_archive(content, [(KEY, encode_metadata(METADATA))], {"source": "file:///in"})
    with zipfile.ZipFile(content) as archive:
        return archive.read(MANIFEST)


def _objects(content: bytes) -> object:
    from airflow_cloudfiles.engine.extensions.transfer.archived import StateArchive

    metadata = encode_metadata(METADATA)
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:  # as `write_archive` makes it
        archive.writestr(f"{0:08}", metadata)
        archive.writestr(MANIFEST, content)
    return [each.key for each in StateArchive(made, "state.zip").members]


def _in(key: str, write: Callable[[ObjectStore], object]) -> Callable[[], bytes]:
    return lambda: written(key, write)


OF_FILES = [
    _metadata(3, BY_CONTENT),
    _metadata(4, WITH_OPERATIONS),
    _metadata(5, WITH_QUARANTINE),
    *(_standing(each) for each in get_args(StateStanding)),
    _entry("with_contents", KNOWN_BY_CONTENT),
    _entry("duplicate", replace(KNOWN_BY_CONTENT, found_by="duplicate")),
    Format(
        name="files_first",
        keys=r"_source/files/[0-9]{20}",
        write=_in(FIRST, _bind),
        read=in_store(FIRST, lambda store: FileLog(store).read(0)),
        expected=PLAIN,
    ),
    Format(
        name="files_moved",
        keys=r"_source/files/[0-9]{20}",
        write=_fenced,
        read=in_store(FIRST, lambda store: FileLog(store).read(0)),
        expected=FileBatch((), "moved", "s3://lake/state"),
    ),
    *(_operation(each) for each in get_args(Action)),
    Format(
        name="operations",
        keys=r"_source/operations/[0-9]{20}",
        write=_in(f"_source/operations/{1:020}", lambda store: announce(store, 1)),
        read=in_store(f"_source/operations/{1:020}", announced),
        expected=[1],
        newer="read",
    ),
    Format(
        name="archived",
        keys=r"_source/archived",
        write=_in("_source/archived", lambda store: write_archived(store, ARCHIVED)),
        read=in_store("_source/archived", read_archived),
        expected=ARCHIVED,
        newer="passed over",
        nothing=CleaningHistory(),
    ),
    Format(
        name="file_results",
        keys=r"_source/file_results/[0-9]+",
        write=_in("_source/file_results/0", lambda store: write_results(store, 0, READ_OF_FILES)),
        read=in_store(
            "_source/file_results/0",
            lambda store: read_results(store, 0, Packs(store, "_source/file_results")),
        ),
        expected=FileResults(
            {"rows": 67, "rescued_rows": 2, "corrupt_records": 1},
            {3: ([1, 5], [[2, 2, 60], [3]]), 4: ([0], [[0]])},
            {(3, 3): FileCounts(0, 2, 1, 1, "", BAD), (4, 0): FileCounts(skipped="missing")},
        ),
    ),
    Format(
        name="sources",
        keys=r"_schemas/sources\.json",
        write=_in(SOURCES, lambda store: add_name(store, "file:///in", "s3://lake/é")),
        read=in_store(SOURCES, names_of),
        expected={"file:///in", "s3://lake/é"},
    ),
    Format(
        name="changes_packed",
        keys=r"_source/changed/packed",
        write=lambda: stamped(encode_notes(PACKED_NOTES)),
        read=in_store(PACKED, read_packed),
        expected=PACKED_NOTES,
    ),
    Format(
        name="export_manifest",
        keys="",
        write=_manifest,
        read=_objects,
        expected=[KEY],
    ),
]
"""`_source/baseline` and `fence-<n>` have no form: digits, and a text that nobody reads."""
