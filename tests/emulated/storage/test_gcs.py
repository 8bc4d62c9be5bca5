"""What is particular to Cloud Storage: generations, names, and a network that fails."""

from __future__ import annotations

import contextlib
import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from airflow_cloudfiles.engine.clouds.gcp.access import GcpAccess
from airflow_cloudfiles.engine.clouds.gcp.client import google_credentials
from airflow_cloudfiles.engine.clouds.gcp.store import GcsStore
from airflow_cloudfiles.engine.errors import OptionError


def answer(status: str, body: str = "") -> dict[str, object]:
    """A rule's reply, made by hand."""
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nConnection: close\r\n"
    return {
        "respond": {"data": f"{head}Content-Length: {len(body)}\r\n\r\n{body}", "then": "close"}
    }


BUSY = answer("503 Service Unavailable", '{"error": {"code": 503, "message": "busy"}}')
TOO_MANY = answer("429 Too Many Requests", '{"error": {"code": 429, "message": "slow down"}}')
FORBIDDEN = answer("403 Forbidden", '{"error": {"code": 403, "message": "secret reasons"}}')
HALF_A_PAGE = answer("200 OK", '{"kind": "storage#objects", "items": [{"name": "k0')
NO_PAGE = answer("200 OK", "")  # cut off in the headers
LISTING = r"GET /storage/v1/b/[^ ]+/o\?"


def keys(store, *args, **kwargs):
    return [entry.path for entry in store.list(*args, **kwargs)]


@pytest.fixture
def uri(gcs):
    return gcs.bucket()


@pytest.fixture
def store(gcs, uri):
    return GcsStore(uri, gcs.access)


# ── generations ──────────────────────────────────────────────────────────────────────────────────


def test_of_eight_writers_of_fifty_keys_one_each_wins(store):
    def write(number: int) -> bool:
        return store.put_if_absent(f"race/{number // 8}", b"%d" % number)

    with ThreadPoolExecutor(8) as threads:
        won = list(threads.map(write, range(400)))
    assert [sum(won[first : first + 8]) for first in range(0, 400, 8)] == [1] * 50


def test_of_eight_that_replace_one_generation_one_wins(store):
    store.put("a", b"first")
    etag = store.head("a").etag

    def write(number: int) -> bool:
        return store.put_if_match("a", b"%d" % number, etag)

    with ThreadPoolExecutor(8) as threads:
        won = list(threads.map(write, range(8)))
    assert sum(won) == 1
    assert store.get("a") == b"%d" % won.index(True)


def test_an_etag_is_a_generation_and_never_used_twice(store):
    etags = set()
    for _ in range(5):
        store.put("a", b"same")
        etags.add(store.head("a").etag)
    assert len(etags) == 5
    assert all(etag.isdigit() for etag in etags)
    assert not store.put_if_match("a", b"", min(etags))
    assert not store.put_if_match("gone", b"", max(etags))


def test_labels_make_no_new_version(gcs, uri, store):
    store.put("a", b"1")
    before = store.head("a")
    with contextlib.closing(gcs.client()) as client:
        blob = client.bucket(uri.removeprefix("gs://")).blob("a")
        blob.metadata = {"seen": "yes"}
        blob.patch()
        blob.reload()
        assert blob.updated > blob.time_created
    assert store.head("a") == before
    assert [*store.list()] == [before]


# ── names and pages ──────────────────────────────────────────────────────────────────────────────


def test_any_text_is_a_key(store):
    names = [
        "../a",
        "./a",
        "//",
        "/a",
        "a",
        "a/",
        "a//b",
        "a/../b",
        "a/b",
        "a\\b",
        "\x01",
        "\ud7ff",
    ]
    for name in names:
        store.put(name, name.encode())
    assert keys(store) == sorted(names)
    assert [store.get(name) for name in names] == [name.encode() for name in names]
    with pytest.raises(OSError, match="another name"):
        store.put("not-utf8-\udcff", b"")
    with pytest.raises(OSError, match="another name"):
        store.get("")


def test_a_listing_between_bounds_reads_what_is_between(store):
    for number in range(30):
        store.put(f"k{number:02}", b"")
    small = GcsStore(store.uri, store._access, page_size=10)
    assert keys(small) == [f"k{number:02}" for number in range(30)]
    assert small.requests["list"] == 3
    assert keys(small, start_after="k04", end_before="k10") == [f"k{n:02}" for n in range(5, 10)]
    assert small.requests["list"] == 4  # the server ends where the listing does
    assert small.key_after("k28") == "k29"
    assert small.key_after("k29") is None
    assert small.requests["list"] == 6


def test_what_is_stored_packed_is_read_packed(gcs, uri, store):
    import gzip

    packed = gzip.compress(b"hello")
    with contextlib.closing(gcs.client()) as client:
        blob = client.bucket(uri.removeprefix("gs://")).blob("a.gz")
        blob.content_encoding = "gzip"
        blob.upload_from_string(packed)
    assert store.get("a.gz") == packed
    assert store.get_range("a.gz", 0, 2) == packed[:2]


# ── a network that fails ─────────────────────────────────────────────────────────────────────────


@pytest.fixture
def behind(gcs, uri, store, microburst):
    """Thirty objects, and a store of small pages that reaches them through a proxy."""
    for number in range(30):
        store.put(f"k{number:02}", b"")
    proxy = microburst(f"127.0.0.1:{gcs.port}", "tcp")

    def open_behind(retry_seconds: float = 30) -> GcsStore:
        access = gcs.access_through(proxy.endpoint)
        return GcsStore(uri, access, page_size=10, retry_seconds=retry_seconds)

    open_behind.proxy = proxy
    return open_behind


def rule(**what):
    return {"service": "tcp", "operation": "conn", "payload": LISTING, **what}


@pytest.mark.parametrize(
    "fault",
    [BUSY, TOO_MANY, HALF_A_PAGE, NO_PAGE, {"cut_reply": {"after_bytes": 700}}, {"reset": True}],
    ids=["503", "429", "not JSON", "empty", "cut off", "reset"],
)
def test_a_page_that_fails_once_is_asked_for_again(behind, fault):
    behind.proxy.rules([rule(**fault, times=1)])
    assert keys(behind()) == [f"k{number:02}" for number in range(30)]
    assert behind.proxy.fired()


@pytest.mark.parametrize(
    "fault",
    [BUSY, TOO_MANY, HALF_A_PAGE, NO_PAGE, {"reset": True}],
    ids=["503", "429", "not JSON", "empty", "reset"],
)
def test_a_page_that_keeps_failing_ends_the_listing_with_a_sentence(behind, fault):
    behind.proxy.rules([rule(**fault)])
    with pytest.raises(ConnectionError, match=r"^gs://\S+ could not be listed: .*[Tt]ry again"):
        keys(behind(retry_seconds=0.1))


def test_what_is_not_allowed_is_said_in_a_sentence(behind):
    behind.proxy.rules([rule(**FORBIDDEN)])
    with pytest.raises(PermissionError, match=r"is denied.*storage\.objects\.list") as caught:
        keys(behind())
    assert "secret" not in str(caught.value)


def test_a_description_that_is_empty_once_is_asked_for_again(behind, store):
    behind.proxy.rules([{**rule(**NO_PAGE, times=1), "payload": r"GET /storage/v1/b/[^ ]+/o/"}])
    assert behind().head("k00") == store.head("k00")
    assert behind.proxy.fired()


def test_a_conditional_write_whose_answer_is_lost_has_happened_once(behind, store):
    behind.proxy.rules(
        [
            {
                **rule(cut_reply={"after_bytes": 10}, times=1),
                "payload": "POST /upload/storage/v1",
            }
        ]
    )
    assert not behind().put_if_absent("lease", b"mine")  # the second try met the first one's object
    assert store.get("lease") == b"mine"


def test_a_bucket_that_is_not_there_is_said_in_a_sentence(gcs):
    nowhere = GcsStore("gs://nowhere-at-all", gcs.access)
    assert not nowhere.is_folder()
    for call in (lambda: keys(nowhere), lambda: nowhere.put("a", b"")):
        with pytest.raises(FileNotFoundError, match="no such bucket"):
            call()


# ── credentials ──────────────────────────────────────────────────────────────────────────────────


def test_a_key_that_is_none_is_refused_without_being_quoted(tmp_path):
    file = tmp_path / "key.json"
    file.write_text(json.dumps({"type": "service_account", "private_key": "secret"}))
    for access in (
        GcpAccess(keyfile_json="secret"),
        GcpAccess(keyfile_json='["secret"]'),
        GcpAccess(keyfile_json=json.dumps({"type": "secret"})),
        GcpAccess(keyfile_path=str(file)),
        GcpAccess(keyfile_path=str(tmp_path / "none.json")),
    ):
        with pytest.raises(OptionError, match="key") as caught:
            google_credentials(access)
        assert "secret" not in str(caught.value)
    assert google_credentials(None) is None
    assert type(google_credentials(GcpAccess(anonymous=True))).__name__ == "AnonymousCredentials"


def test_the_emulator_of_the_environment_is_obeyed(gcs, uri, store, monkeypatch):
    store.put("a", b"1")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs.endpoint)
    assert GcsStore(uri).get("a") == b"1"


def test_without_credentials_that_is_said(monkeypatch, tmp_path):
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    with pytest.raises(PermissionError, match="no Google credentials"):
        GcsStore("gs://any").get("a")
