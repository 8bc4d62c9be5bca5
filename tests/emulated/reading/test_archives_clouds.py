"""A large archive in a cloud is read by ranges, in a version, and never as a whole."""

from __future__ import annotations

import json
import random
import uuid

import pytest

from airflow_cloudfiles.engine.errors import FileChangedError, FileUnreachableError
from airflow_cloudfiles.engine.extensions.archives import zip_files
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.reading import opened
from airflow_cloudfiles.engine.reading.fetch import FetchCounts, fetch, fetched_ahead, files_in
from airflow_cloudfiles.engine.reading.splits import FileRange
from airflow_cloudfiles.engine.storage import open_store
from tests.support.archive_files import KINDS
from tests.support.sftp_servers import Landed

MEMBERS = [
    (
        f"{n}.json",
        b"".join(
            json.dumps({"a": random.Random(n * 1000 + i).random()}).encode() + b"\n"
            for i in range(2000)
        ),
    )
    for n in range(8)
]
OPTIONS = CloudFilesOptions.parse({"cloudFiles.format": "json"}, path="/x")


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


def read(store, options=OPTIONS):
    """The members that come of all files."""
    parts = [FileRange(file) for file in store.list()]

    def use(file):
        for each in files_in(file, options):
            yield each.uri, b"".join(each.blocks())

    for part, first in fetched_ahead(store, parts):
        yield from fetch(store, part, FetchCounts(), use, ignore_missing=False, first=first)


@pytest.fixture(params=sorted(KINDS))
def kind(request):
    """The end of the name of an archive."""
    return request.param


def test_every_kind_is_read_whole(store, kind):
    store.put(f"a b{kind}", KINDS[kind](MEMBERS))
    uri = store.child_uri(f"a b{kind}")
    assert list(read(store)) == [(f"{uri}!/{name}", content) for name, content in MEMBERS]


@pytest.mark.parametrize("kind", [".zip", ".ZIP", ".tar", ".tar.gz"])
def test_it_is_asked_for_in_ranges_once(store, kind, monkeypatch):
    monkeypatch.setattr(opened, "BLOCK_BYTES", 50_000)
    monkeypatch.setattr(zip_files, "BLOCK_BYTES", 50_000)
    content = KINDS[kind](MEMBERS)
    store.put(f"a{kind}", content)
    before = store.requests
    assert [content for _, content in read(store)] == [content for _, content in MEMBERS]
    asked = (store.requests - before)["get"]
    blocks = -(-len(content) // 50_000)
    assert blocks <= asked <= blocks * 2 + 6, "the directory of a zip besides, in blocks of its own"


def test_another_version_is_never_mixed_in(store, monkeypatch):
    monkeypatch.setattr(opened, "BLOCK_BYTES", 50_000)
    monkeypatch.setattr(zip_files, "BLOCK_BYTES", 50_000)
    store.put("a.zip", KINDS[".ZIP"](MEMBERS))
    found = read(store)
    next(found)
    store.put("a.zip", KINDS[".ZIP"](MEMBERS[::-1]))
    with pytest.raises((FileChangedError, FileUnreachableError)) as caught:
        list(found)
    assert caught.value.is_retryable
