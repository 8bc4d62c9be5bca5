"""A small file in a cloud costs one request, asked for ahead, and is the version discovered."""

from __future__ import annotations

import gzip
import itertools
import threading
import uuid

import pytest
from azure.storage.blob import ContentSettings

from airflow_cloudfiles.engine.errors import (
    FileChangedError,
    FileMissingError,
    FileUnreachableError,
    FileUnreadableError,
)
from airflow_cloudfiles.engine.reading import decoding as encodings
from airflow_cloudfiles.engine.reading import fetch as ahead
from airflow_cloudfiles.engine.reading import opened as fetching
from airflow_cloudfiles.engine.reading.fetch import FetchCounts, fetched_ahead
from airflow_cloudfiles.engine.reading.missing_files import check_deleted, check_root
from airflow_cloudfiles.engine.reading.splits import FileRange
from airflow_cloudfiles.engine.storage import open_store
from tests.support.lines import fetch
from tests.support.sftp_servers import Landed


@pytest.fixture(params=["s3", "azure", "gcs", "sftp"])
def store(request):
    """A new folder in each cloud, and on a server."""
    if request.param == "sftp":
        return Landed(request.getfixturevalue("asyncssh_server"), uuid.uuid4().hex)
    emulator = request.getfixturevalue(
        {"s3": "aws", "azure": "azurite", "gcs": "gcs"}[request.param]
    )
    root = emulator.container() if request.param == "azure" else emulator.bucket()
    return open_store(f"{root}/in", emulator.access)


def read(store, parts, counts=None, **options) -> bytes:
    counts = counts or FetchCounts()
    options = {"ignore_missing": False, **options}
    return b"".join(
        block
        for part, first in fetched_ahead(store, parts)
        for block in fetch(store, part, counts, first=first, **options)
    )


def listed(store):
    return list(store.list())


def test_a_small_file_costs_one_request(store):
    for number in range(20):
        store.put(f"{number:02}.json", b"%d\n" % number)
    files = listed(store)
    before = store.requests
    assert read(store, [FileRange(file) for file in files]) == b"".join(
        b"%d\n" % number for number in range(20)
    )
    assert store.requests - before == {"get": 20}


def test_a_large_file_is_read_in_pieces_of_one_version(store, monkeypatch):
    monkeypatch.setattr(fetching, "BLOCK_BYTES", 100)
    monkeypatch.setattr(encodings, "BUFFER_BYTES", 100)  # else it is all read at once
    lines = b"".join(b"%06d\n" % number for number in range(100))
    store.put("a.json", lines)
    store.put("b.json.gz", gzip.compress(lines))
    plain, packed = listed(store)
    cuts = itertools.pairwise([0, 150, 333, plain.size])
    assert read(store, [FileRange(plain, start, end) for start, end in cuts]) == lines
    assert read(store, [FileRange(packed)]) == lines
    blocks = fetch(store, FileRange(plain), FetchCounts(), ignore_missing=False)
    next(blocks)
    store.put("a.json", lines.replace(b"0", b"x"))
    with pytest.raises(FileChangedError, match=r"a\.json was overwritten"):
        list(blocks)


def test_a_large_file_that_is_deleted_meanwhile_is_not_kept_in_part(store, monkeypatch):
    monkeypatch.setattr(fetching, "BLOCK_BYTES", 100)
    store.put("a.json", b"".join(b"%06d\n" % number for number in range(100)))
    (file,) = listed(store)
    counts = FetchCounts()
    blocks = fetch(store, FileRange(file), counts, ignore_missing=True)
    next(blocks)
    store.delete("a.json")
    with pytest.raises(FileChangedError, match=r"a\.json was deleted while"):
        list(blocks)
    assert read(store, [FileRange(file)], counts, ignore_missing=True) == b""
    assert counts.missing_files == 1


def test_a_source_that_is_empty_or_gone_has_deleted_no_file(store):
    store.put("a.json", b"1\n")
    store.put("b.json", b"2\n")
    gone, kept = listed(store)
    store.delete("a.json")
    check_deleted(store, [gone], lambda: [gone, kept])
    store.put("a.json", b"3\n")
    with pytest.raises(FileUnreachableError, match="gone for a moment"):
        check_deleted(store, [gone], lambda: [gone, kept])
    store.delete("a.json")
    store.delete("b.json")
    with pytest.raises(FileUnreachableError, match=r"is empty|does not exist any more"):
        check_deleted(store, [gone], lambda: [gone, kept])


@pytest.mark.parametrize("cloud", ["s3", "azure", "gcs"])
def test_a_bucket_that_is_gone_has_deleted_no_file(request, cloud):
    emulator = request.getfixturevalue({"s3": "aws", "azure": "azurite", "gcs": "gcs"}[cloud])
    root = emulator.container() if cloud == "azure" else emulator.bucket()
    name = root.partition("://")[2].partition("@")[0].partition("/")[0]
    store = open_store(f"{root.replace(name, 'gone' + uuid.uuid4().hex[:8])}/in", emulator.access)
    with pytest.raises(FileUnreachableError, match="there is no such"):
        check_root(store)


def test_what_changed_since_it_was_discovered_is_read_as_it_is_now(store):
    store.put("a.json", b"old\n")
    store.put("b.json", b"same\n")
    files = listed(store)
    store.put("a.json", b"newer\n")
    counts = FetchCounts()
    assert read(store, [FileRange(file) for file in files], counts) == b"newer\nsame\n"
    assert (counts.changed_files, counts.files, counts.bytes) == (1, 2, 11)


def test_what_is_gone_is_an_error_or_counted(store):  # B96
    store.put("a.json", b"1\n")
    store.put("b.json", b"2\n")
    parts = [FileRange(file) for file in listed(store)]
    store.delete("a.json")
    with pytest.raises(FileMissingError, match=r"a\.json"):
        read(store, parts)
    counts = FetchCounts()
    assert read(store, parts, counts, ignore_missing=True) == b"2\n"
    assert counts.missing_files == 1


def test_requests_wait_side_by_side_within_a_bound(monkeypatch):
    store = open_store("memory://ahead")
    for number in range(12):
        store.put(f"{number:02}", b"x" * 1000)
    files = listed(store)
    monkeypatch.setattr(ahead, "AHEAD_BYTES", 4 * 5096)
    together = threading.Barrier(4)
    asked = []

    def slow(_store, file, _look):
        asked.append(file.path)
        if len(asked) <= 4:
            together.wait(timeout=300)  # broken unless four wait at the same time
        return b"x" * 1000

    monkeypatch.setattr(ahead, "first_read", slow)
    parts = fetched_ahead(store, [FileRange(file) for file in files])
    part, first = next(parts)
    assert first() == b"x" * 1000
    assert part.file == files[0]
    assert len(asked) == 4
    parts.close()


def test_an_overwritten_file_is_left_to_its_newer_version(store):
    store.put("a.json", b"1\n")
    store.put("b.json", b"1\n")
    files = listed(store)
    store.put("a.json", b"2\n")  # of the same size, and perhaps within the clock's resolution
    counts, told = FetchCounts(), []
    parts = [FileRange(file) for file in files]
    assert read(store, parts, counts, superseded=told.append) == b"1\n"
    assert (counts.superseded_files, counts.changed_files) == (1, 0)
    # What is told is what a listing sees: else its version would be recorded twice.
    assert told == [file for file in listed(store) if file.path == "a.json"]


@pytest.mark.parametrize("cloud", ["s3", "azure", "gcs"])
def test_content_encoding_is_what_a_file_is_and_not_how_it_is_sent(request, cloud):
    store = _stored_as_gzip(request, cloud, gzip.compress(b"1\n2\n"))
    (file,) = listed(store)
    assert gzip.decompress(store.get("a.json.gz")) == b"1\n2\n"
    assert store.get_range("a.json.gz", 0, file.size, etag=file.etag)[:2] == b"\x1f\x8b"
    assert read(store, [FileRange(file)]) == b"1\n2\n"


def _stored_as_gzip(request, cloud, content):
    name = {"s3": "aws", "azure": "azurite", "gcs": "gcs"}[cloud]
    emulator = request.getfixturevalue(name)
    root = emulator.container() if cloud == "azure" else emulator.bucket()
    store = open_store(root, emulator.access)
    if cloud == "s3":
        bucket = root.removeprefix("s3://")
        given = {"Bucket": bucket, "Key": "a.json.gz", "ContentEncoding": "gzip"}
        emulator.client("s3").put_object(Body=content, **given)
    elif cloud == "azure":
        settings = ContentSettings(content_encoding="gzip")
        store._blob("a.json.gz").upload_blob(content, content_settings=settings)
    else:
        blob = store._blob("a.json.gz", None)
        blob.content_encoding = "gzip"
        blob.upload_from_string(content)
    return store


def test_an_archived_object_is_to_be_restored(aws):
    root = aws.bucket()
    bucket = root.removeprefix("s3://")
    for kind in ("GLACIER", "DEEP_ARCHIVE"):
        key = f"{kind}.json"
        aws.client("s3").put_object(Bucket=bucket, Key=key, Body=b"1\n", StorageClass=kind)
        store = open_store(root, aws.access)
        file = store.head(key)
        with pytest.raises(FileUnreadableError, match=rf"{key}.*archived.*{kind}.*Restore") as told:
            read(store, [FileRange(file)])
        assert "ermission to" not in told.value.message
        assert not told.value.is_retryable
