"""A version of an object is removed or copied, and never another one: in every store."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
import requests
from azure.storage.blob import BlobClient
from botocore.httpsession import URLLib3Session

from airflow_cloudfiles.engine.clouds.aws import store as s3
from airflow_cloudfiles.engine.clouds.azure import store as blobs
from airflow_cloudfiles.engine.extensions.cleaning.one_file import FileCleaner, own_name
from airflow_cloudfiles.engine.storage import ObjectStore, open_store
from airflow_cloudfiles.engine.storage.base import ObjectChangedError, ObjectNotFoundError
from tests.emulated.storage.test_storage_behaviors import EMULATORS
from tests.support.emulators.other_servers import kinds

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.files import FileEntry
    from tests.support.emulators.aws import Aws
    from tests.support.emulators.gcp import Gcs

NAMES = [
    "a/b.json",
    "with space.json",
    "100%.json",
    "a%20b+c=d&e.json",
    "caf\u00e9?#.json",
    "\U0001f600;x.json",
]


class Places:
    """A source and an archive in one bucket."""

    def __init__(self, root: str, access: object) -> None:
        self.source: ObjectStore = open_store(f"{root}/in", access)  # type: ignore[arg-type]
        self.archive: ObjectStore = open_store(f"{root}/archive", access)  # type: ignore[arg-type]

    def put(self, key: str = "a/b.json", content: bytes = b"rows") -> FileEntry:
        self.source.put(key, content)
        found = self.source.head(key)
        assert found is not None
        return found


KINDS = [
    each for each in kinds("local", "memory", "s3", "seaweed", "azure", "gcs") if each != "swift"
]
"""Swift refuses each copy with a condition: what it has is not cleaned."""
IGNORING = {
    "delete": {"gcs", "ceph"},
    "copy": {"s3", "gcs", "moto", "s3mock", "versity", "ceph"},
    "copied": {"moto", "ceph"},
    "gone": {"versity", "ceph"},
}
"""Servers that take the condition of a deletion, that a copy replaces nothing, or which version is
copied, and ignore it; and those that delete what is not there. The services do not."""


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def places(kind: str, request: pytest.FixtureRequest, tmp_path: object) -> Places:
    if kind == "local":
        return Places(str(tmp_path), None)
    if kind == "memory":
        return Places(f"memory://{uuid.uuid4().hex}", None)
    emulator = request.getfixturevalue(EMULATORS.get(kind, kind))
    root = emulator.container() if kind == "azure" else emulator.bucket()
    return Places(root, emulator.access)


@pytest.mark.parametrize("name", NAMES)
def test_a_version_is_removed(places: Places, name: str) -> None:
    entry = places.put(name)
    places.source.delete_version(entry)
    assert places.source.head(name) is None


@pytest.mark.parametrize("kind", [each for each in KINDS if each not in IGNORING["gone"]])
def test_a_version_that_is_gone_is_not_removed_again(places: Places) -> None:
    entry = places.put()
    places.source.delete_version(entry)
    with pytest.raises(ObjectNotFoundError):
        places.source.delete_version(entry)


@pytest.mark.parametrize("kind", [each for each in KINDS if each not in IGNORING["delete"]])
def test_another_version_is_not_removed(places: Places) -> None:
    entry = places.put()
    newer = places.put(content=b"newer")
    with pytest.raises(ObjectChangedError):
        places.source.delete_version(entry)
    assert places.source.get("a/b.json") == b"newer"
    places.source.delete_version(newer)
    assert places.source.head("a/b.json") is None


@pytest.mark.parametrize("name", NAMES)
def test_a_version_is_copied(places: Places, name: str) -> None:
    entry = places.put(name)
    assert places.source.copy_version(entry, places.archive, f"x/{name}") is True
    assert places.archive.get(f"x/{name}") == b"rows"
    ours, theirs = places.source.fingerprint(name), places.archive.fingerprint(f"x/{name}")
    assert ours is not None
    assert theirs is not None
    assert (ours.entry, theirs.entry.size) == (entry, 4)
    assert ours.checksums & theirs.checksums
    assert places.source.get(name) == b"rows"


def test_an_empty_object_is_copied(places: Places) -> None:
    entry = places.put(content=b"")
    assert places.source.copy_version(entry, places.archive, "empty")
    assert places.archive.get("empty") == b""


@pytest.mark.parametrize("kind", [each for each in KINDS if each not in IGNORING["copy"]])
def test_a_copy_replaces_nothing(places: Places) -> None:
    entry = places.put()
    places.archive.put("b.json", b"theirs")
    assert places.source.copy_version(entry, places.archive, "b.json") is False
    assert places.archive.get("b.json") == b"theirs"


def test_conditions_are_sent_to_emulators_that_ignore_them(
    gcs: Gcs, aws: Aws, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    for session in (requests.Session, URLLib3Session):
        monkeypatch.setattr(session, "send", _noting(sent, session.send))
    for kind, places in (
        ("gcs", Places(gcs.bucket(), gcs.access)),
        ("s3", Places(aws.bucket(), aws.access)),
    ):
        entry = places.put()
        sent.clear()
        places.source.copy_version(entry, places.archive, "b.json")
        places.source.delete_version(entry)
        [copy, delete] = [each for each in sent if each.startswith(("POST", "PUT", "DELETE"))]
        if kind == "gcs":
            assert "ifGenerationMatch=0" in copy
            assert f"ifSourceGenerationMatch={entry.etag}" in copy
            assert f"ifGenerationMatch={entry.etag}" in delete
        else:
            assert "if-none-match: *" in copy.lower()
            assert f'x-amz-copy-source-if-match: "{entry.etag}"' in copy.lower()
            assert f'if-match: "{entry.etag}"' in delete.lower()


def _noting(sent: list[str], send: Callable[..., Any]) -> Callable[..., Any]:
    """Send a request as before, and note its line and headers."""

    def noting(session: Any, request: Any, **given: Any) -> Any:
        headers = (
            f"{name}: {value.decode() if isinstance(value, bytes) else value}"
            for name, value in request.headers.items()
        )
        sent.append("\n".join([f"{request.method} {request.url}", *headers]))
        return send(session, request, **given)

    return noting


@pytest.mark.parametrize("name", NAMES)
def test_a_file_is_moved(places: Places, name: str) -> None:
    cleaner = FileCleaner(places.source, places.archive)
    entry = places.put(name)
    assert cleaner.clean(entry) == "cleaned"
    assert cleaner.clean(entry) == "gone"
    newer = places.put(name, b"newer")
    assert cleaner.clean(entry) == "changed"
    assert cleaner.clean(newer) == "cleaned", "beside the one that was moved before"
    assert places.archive.get(name) == b"rows"
    assert places.archive.get(own_name(newer)) == b"newer"
    assert places.source.head(name) is None


def test_a_copy_that_a_killed_cleaning_left_counts(places: Places) -> None:
    entry = places.put()
    assert places.source.copy_version(entry, places.archive, "a/b.json")
    assert FileCleaner(places.source, places.archive).clean(entry) == "cleaned"
    assert [each.path for each in places.archive.list()] == ["a/b.json"]


@pytest.mark.parametrize("kind", ["azure"])
def test_a_copy_that_takes_long_is_left_to_azure_and_counts_later(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = places.put()
    start = BlobClient.start_copy_from_url

    def pending(self: BlobClient, *given: Any, **named: Any) -> dict[str, Any]:
        return {**start(self, *given, **named), "copy_status": "pending"}

    cleaner = FileCleaner(places.source, places.archive)
    with monkeypatch.context() as patch:
        patch.setattr(BlobClient, "start_copy_from_url", pending)
        patch.setattr(blobs, "_COPY_SECONDS", 0.0)
        with pytest.raises(ConnectionError, match="could not be copied: pending"):
            cleaner.clean(entry)
    assert places.source.head(entry.path) is not None
    assert cleaner.clean(entry) == "cleaned"
    assert [each.path for each in places.archive.list()] == [entry.path]


@pytest.mark.parametrize("kind", [each for each in KINDS if each not in IGNORING["copied"]])
def test_another_version_is_not_copied(places: Places) -> None:
    entry = places.put()
    places.put(content=b"newer")
    with pytest.raises(ObjectChangedError):
        places.source.copy_version(entry, places.archive, "b.json")
    places.source.delete("a/b.json")
    with pytest.raises(ObjectNotFoundError):
        places.source.copy_version(entry, places.archive, "b.json")
    assert places.archive.head("b.json") is None


def test_what_is_not_there_has_no_fingerprint(places: Places) -> None:
    assert places.source.fingerprint("none") is None


def test_a_copy_goes_to_no_other_store(places: Places, kind: str, tmp_path: object) -> None:
    entry = places.put()
    other = "memory://elsewhere" if kind == "local" else f"{tmp_path}/elsewhere"
    with pytest.raises(ValueError, match="is not "):
        places.source.copy_version(entry, open_store(other), "b.json")


@pytest.mark.parametrize("kind", ["s3", "seaweed"])
def test_s3_copies_a_large_object_in_parts(
    kind: str, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = 5 * 2**20
    monkeypatch.setattr(s3, "COPIED_AT_ONCE", part)
    monkeypatch.setattr(s3, "PART_BYTES", part)
    content = bytes(range(256)) * (part // 256) + b"the rest"
    entry = places.put(content=content)
    assert places.source.copy_version(entry, places.archive, "b.json")
    assert places.archive.get("b.json") == content
    places.put(content=b"newer" * part)
    with pytest.raises(ObjectChangedError):
        places.source.copy_version(entry, places.archive, "c.json")
    assert places.archive.head("c.json") is None
