"""By what is a file known, wherever files land and however they are found?"""

from __future__ import annotations

import contextlib

import pytest

from airflow_cloudfiles.engine.files import START
from airflow_cloudfiles.engine.storage import content as content_module
from airflow_cloudfiles.engine.storage.content import content_of
from tests.support.discovery.ways import WAYS, landing, recorded


@pytest.fixture(params=[way for way in WAYS if way != "local"])
def place(request, tmp_path):
    """A new place of each kind in a cloud."""
    return landing(request.param, tmp_path, request.getfixturevalue)


def test_an_overwrite_is_new_by_its_version(place, tmp_path):  # B103, B104
    state = tmp_path / "state"
    with contextlib.closing(place.open(state, file_identity="pathAndVersion")) as intake:
        place.put("a.json", b"1")
        intake.discover()
        place.put("a.json", b"2")  # of the same size, perhaps within the clock's resolution
        intake.discover()
        # Written again with the same bytes: S3 gives them the same etag, the others another one.
        place.put("a.json", b"2")
        intake.discover()
        intake.discover()
        times = 2 if place.source.startswith("s3") else 3
        assert recorded(intake) == ["a.json"] * times


def test_what_was_found_by_notification_is_known_to_a_listing(place, tmp_path):
    with contextlib.closing(place.open(tmp_path / "state")) as intake:
        place.put("a.json", b"1")
        intake.discover()
    with contextlib.closing(
        place.open(tmp_path / "state", file_identity="pathAndVersion")
    ) as intake:
        intake.discover(full=True)
        assert recorded(intake) == ["a.json"]


def test_a_content_is_new_once(place, tmp_path):
    with contextlib.closing(place.open(tmp_path / "state", file_identity="content")) as intake:
        place.put("a.json", b"1")
        place.put("b.json", b"1")
        place.put("c.json", b"2")
        intake.discover()
        assert len(recorded(intake)) == 2
        place.put("c.json", b"2")
        place.put("d.json", b"3")
        place.put("a.json", b"3")
        intake.discover()
        intake.discover(full=True)
        found = [file.content for file in intake.files.slice(START, intake.head())]
        assert sorted(found) == sorted(
            content_of(place.store, file)
            for file in place.store.list()
            if file.path in {"b.json", "c.json", "d.json"}
        )


@pytest.mark.parametrize("checksum", ["SHA256", None])
def test_a_large_object_with_its_sha_256_is_not_read(aws, monkeypatch, checksum):
    monkeypatch.setattr(content_module, "PIECE_BYTES", 4)
    place = landing("s3", None, lambda _: aws)
    bucket, client = place.source.split("/")[2], aws.client("s3")
    given = {"ChecksumAlgorithm": checksum} if checksum else {}
    client.put_object(Bucket=bucket, Key="in/a", Body=b"123456789", **given)
    client.put_object(Bucket=bucket, Key="in/b", Body=b"123456789")
    store = place.store
    first, second = store.list()
    assert content_of(store, second) == content_of(store, first)
    assert store.requests["get"] == (3 if checksum else 6)
