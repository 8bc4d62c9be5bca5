"""Servers that are compatible but for what they leave out: sizes and times of objects."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from airflow_cloudfiles.engine.clouds.aws.access import AwsAccess
from airflow_cloudfiles.engine.clouds.azure.access import AzureAccess
from airflow_cloudfiles.engine.clouds.gcp.access import GcpAccess
from airflow_cloudfiles.engine.storage import open_store
from tests.support.emulators.azure import KEY
from tests.support.serving import serving

TIME = "Fri, 21 Nov 2025 06:11:29 GMT"
TIME_US = 1_763_705_489_000_000
TYPE = "<BlobType>BlockBlob</BlobType>"
WHOLE, BARE = "in/whole", "in/bare"


class Server(ThreadingHTTPServer):
    """Lists `whole`, `bare` without size and time, and marks of folders without either.

    Attributes:
        has_time: Whether a single object has a `Last-Modified`.
        lists_time: Whether the listing has the time of `whole`.
    """

    daemon_threads = True

    def __init__(self, kind):
        super().__init__(("127.0.0.1", 0), KINDS[kind][0])
        self.has_time = self.lists_time = True
        self.endpoint = f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def send(self, content, kind, **headers):
        self.send_response(200)
        for name, value in {
            "Content-Type": kind,
            "Content-Length": len(content),
            **headers,
        }.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def do_HEAD(self):
        time = {"Last_Modified": TIME} if self.server.has_time else {}
        self.send(b"abc", "text/plain", ETag='"e"', x_ms_blob_type="BlockBlob", **time)

    def log_message(self, *_):
        pass


class S3(Handler):
    def do_GET(self):
        time = "<LastModified>2025-11-21T06:11:29.000Z</LastModified>"
        time = time if self.server.lists_time else ""
        listed = f"<Contents><Key>{WHOLE}</Key>{time}<Size>3</Size><ETag>e</ETag></Contents>"
        if WHOLE.replace("/", "%2F") not in self.path:
            names = ("in/", BARE, "in/folder/")
            listed = "".join(f"<Contents><Key>{name}</Key></Contents>" for name in names) + listed
        body = f"<ListBucketResult><IsTruncated>false</IsTruncated>{listed}"
        self.send(f"{body}</ListBucketResult>".encode(), "application/xml")


class Azure(Handler):
    def do_GET(self):
        if "comp=list" not in self.path:
            self.send(b"", "text/plain", x_ms_is_hns_enabled="false")
            return
        properties = f"<Last-Modified>{TIME}</Last-Modified><Content-Length>3</Content-Length>"
        blobs = "".join(
            f"<Blob><Name>{name}</Name><Properties>{values}<Etag>e</Etag>{TYPE}</Properties></Blob>"
            for name, values in (("in/", ""), (BARE, ""), ("in/folder/", ""), (WHOLE, properties))
        )
        body = f"<EnumerationResults><Blobs>{blobs}</Blobs><NextMarker/></EnumerationResults>"
        self.send(b'<?xml version="1.0" encoding="utf-8"?>' + body.encode(), "application/xml")


class Gcs(Handler):
    def do_GET(self):
        whole = {
            "name": WHOLE,
            "size": "3",
            "generation": "1",
            "timeCreated": "2025-11-21T06:11:29Z",
        }
        if "/o/" in self.path:
            found = {**whole, "name": BARE}
            if not self.server.has_time:
                del found["timeCreated"]
        else:
            marks = [{"name": name} for name in ("in/", BARE, "in/folder/")]
            found = {"items": [*marks, whole]}
        self.send(json.dumps(found).encode(), "application/json")


def _aws(endpoint):
    keys = {"access_key_id": "k", "secret_access_key": "s", "region": "us-east-1"}
    return AwsAccess(**keys, endpoint_urls={"": endpoint}, path_style=True)


KINDS = {
    "s3": (S3, "s3://bucket/in", _aws),
    "azure": (
        Azure,
        "abfss://c@account.dfs.core.windows.net/in",
        lambda endpoint: AzureAccess(account_key=KEY, blob_endpoint=f"{endpoint}/account"),
    ),
    "gcs": (
        Gcs,
        "gs://bucket/in",
        lambda endpoint: GcpAccess(anonymous=True, storage_endpoint=endpoint, project="p"),
    ),
}


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def server(kind):
    with serving(Server(kind)) as server:
        yield server


@pytest.fixture
def store(kind, server):
    _, uri, access = KINDS[kind]
    return open_store(uri, access(server.endpoint))


def test_what_a_listing_lacks_the_object_is_asked_for_and_marks_of_folders_are_none(store):
    found = {entry.path: (entry.size, entry.modification_time_us) for entry in store.list()}
    assert found == {"whole": (3, TIME_US), "bare": (3, TIME_US)}


def test_an_object_without_a_time_is_an_error_with_its_name_and_no_key_error(store, server):
    server.has_time = server.lists_time = False
    with pytest.raises(OSError, match=r"bare could not be inspected.*no modification time"):
        list(store.list())
    with pytest.raises(OSError, match=r"could not be inspected.*no modification time"):
        store.head("bare")


@pytest.mark.parametrize("kind", ["s3"])
def test_a_time_that_headers_lack_is_taken_from_the_listing(store, server):
    server.has_time = False
    assert store.head("whole").modification_time_us == TIME_US
    assert store.fingerprint("whole").entry == store.head("whole")
