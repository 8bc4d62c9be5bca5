"""Credentials go to the clouds' own domains and to addresses that were named, and nowhere else."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from airflow_cloudfiles.engine.clouds.aws import queue as sqs
from airflow_cloudfiles.engine.clouds.aws.access import AwsAccess
from airflow_cloudfiles.engine.clouds.aws.store import S3Store
from airflow_cloudfiles.engine.clouds.azure import queue as azure_queue
from airflow_cloudfiles.engine.clouds.azure import queue as events_azure
from airflow_cloudfiles.engine.clouds.azure.access import AzureAccess
from airflow_cloudfiles.engine.clouds.azure.client import DOMAINS, open_account
from airflow_cloudfiles.engine.clouds.azure.store import AzureStore
from airflow_cloudfiles.engine.clouds.gcp.access import GcpAccess
from airflow_cloudfiles.engine.clouds.gcp.store import GcsStore
from airflow_cloudfiles.engine.discovery.events import Candidates, FileEvent
from airflow_cloudfiles.engine.discovery.filters import FileFilter
from airflow_cloudfiles.engine.discovery.queues.base import Message
from airflow_cloudfiles.engine.errors import CloudFilesError, OptionError
from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
from airflow_cloudfiles.engine.storage.access import Access, to_environment
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from airflow_cloudfiles.engine.tables.delta.opening import open_table

FOREIGN = [
    "attacker.example",
    "evil.dfs.core.windows.net",
    "core.windows.net.attacker.example",
    "xcore.windows.net",
    "windows.net",
    "net",
]
WAYS = {
    "sas": AzureAccess(sas_token="sig=SECRET"),
    "key": AzureAccess(account_key="a2V5"),
    "connection string": AzureAccess(connection_string="AccountName=acct;AccountKey=a2V5"),
    "sas in a connection string": AzureAccess(connection_string="SharedAccessSignature=sig=SECRET"),
    "identity": AzureAccess(tenant_id="t", client_id="c", client_secret="s"),
    "nothing": None,
}


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch):
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    for name in ("AZURE_STORAGE_CONNECTION_STRING", "STORAGE_EMULATOR_HOST", "CLOUDFILES_ACCESS"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("service", ["blob", "queue"])
@pytest.mark.parametrize("domain", FOREIGN)
@pytest.mark.parametrize("way", WAYS)
def test_a_location_at_a_foreign_host_gets_no_credential(way, domain, service):
    with pytest.raises(OptionError, match="No credential is sent there") as caught:
        open_account("acct", WAYS[way], service, domain=domain)
    assert f"acct.dfs.{domain}" in str(caught.value)
    assert f"{service}_endpoint" in str(caught.value)
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize("domain", sorted(DOMAINS))
def test_every_cloud_of_azure_is_served(domain):
    account = open_account("acct", WAYS["sas"], "blob", domain=domain)
    assert account.endpoint == f"https://acct.blob.{domain}"


@pytest.mark.parametrize(
    ("access", "endpoint"),
    [
        (AzureAccess(sas_token="s", blob_endpoint="https://blobs.mine.example"), None),
        (AzureAccess(account_key="k", blob_endpoint="http://127.0.0.1:10000/acct"), None),
        (
            AzureAccess(connection_string="AccountName=acct;AccountKey=k;EndpointSuffix=mine.test"),
            "https://acct.blob.mine.test",
        ),
    ],
)
def test_an_address_that_the_connection_names_is_used(access, endpoint):
    found = open_account("acct", access, "blob", domain="mine.test")
    assert found.endpoint == (endpoint or access.blob_endpoint)


def test_a_connection_string_of_the_environment_is_not_sent_to_the_host_of_a_location(monkeypatch):
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", "AccountName=acct;AccountKey=a2V5")
    with pytest.raises(OptionError, match="No credential is sent there"):
        open_account("acct", None, "blob", domain="attacker.example")


def test_table_and_queue_at_a_foreign_host_are_refused_too(monkeypatch):
    uri = "abfss://c@acct.dfs.attacker.example/in"
    for name, value in to_environment(WAYS["sas"]).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(OptionError, match="No credential is sent there"):
        DeltaLocation.of(uri).storage_options()
    with pytest.raises(OptionError, match="No credential is sent there"):
        azure_queue.open_queue("files", uri, DiscoveryOptions(), None)


@pytest.mark.parametrize(
    "name", ["a/b", "a?b", "..", "ab", "Files", "a--b", "-ab", "x" * 64, "a\n"]
)
def test_a_queue_name_that_could_be_part_of_an_address_is_refused(name):
    with pytest.raises(OptionError, match=r"cloudFiles\.queueName"):
        azure_queue.open_queue(
            name, "abfss://c@acct.dfs.core.windows.net/in", DiscoveryOptions(), WAYS["sas"]
        )


def _event(host: str, container: str = "c", name: str = "in/f.json") -> FileEvent:
    message = {
        "eventType": "Microsoft.Storage.BlobCreated",
        "subject": f"/blobServices/default/containers/{container}/blobs/{name}",
        "topic": f"/x/providers/Microsoft.Storage/storageAccounts/{host.partition('.')[0]}",
        "eventTime": "2026-01-01T00:00:00Z",
        "data": {
            "api": "PutBlob",
            "contentLength": 3,
            "eTag": "0x1",
            "url": f"https://{host}/{container}/{name}",
        },
    }
    body = json.dumps(message).encode()
    (found,) = events_azure.parse(Message(id="1", receipt="r", body=body))
    return found


@pytest.mark.parametrize(
    ("rewrites", "event", "key"),
    [
        ((), _event("acct.blob.core.windows.net"), "f.json"),
        ((), _event("acct.blob.attacker.example"), None),
        ((), _event("other.blob.core.windows.net"), None),
        ((), _event("acct.blob.core.windows.net", "other"), None),
        ((("c@acct/in", "abfss://c@acct.dfs.attacker.example/in"),), _event("acct.blob.x"), None),
        ((("c@acct", "s3://elsewhere"),), _event("acct.blob.core.windows.net"), None),
    ],
)
def test_a_message_names_a_file_below_the_source_or_nothing(rewrites, event, key, foreign):
    # The only address there is: whoever asked anybody would ask there.
    access = AzureAccess(sas_token="SECRET", blob_endpoint=f"http://127.0.0.1:{foreign.port}/acct")
    source = AzureStore("abfss://c@acct.dfs.core.windows.net/in", access)
    options = DiscoveryOptions(path_rewrites=rewrites)
    wanted = FileFilter(source.uri, None, options, [])
    candidates = Candidates(source, wanted, options, looks=False)
    with ThreadPoolExecutor(1) as pool:
        found = [each.file.path for each in candidates.found([event], pool)]
    assert found == ([key] if key else [])
    assert candidates.outside == (0 if key else 1)
    assert foreign.seen == []


# Redirects ------------------------------------------------------------------------------------


@dataclass
class Server:
    """A real server that answers with a redirect, or (without one) takes down who came."""

    location: str | None = None
    status: int = 307
    seen: list[str] = field(default_factory=list)
    port: int = 0

    def __post_init__(self) -> None:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                server.seen.append(f"{self.command} {self.path}\n{self.headers}")
                self.send_response(server.status if server.location else 404)
                if server.location:
                    self.send_header("Location", server.location + self.path)
                    self.send_header("x-amz-bucket-region", "attacker.example/#")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        for method in ("PUT", "POST", "HEAD", "DELETE"):
            setattr(Handler, f"do_{method}", Handler.do_GET)
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._http.server_port
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


@pytest.fixture
def foreign() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture(params=[302, 307])
def redirecting(request, foreign) -> Iterator[Server]:
    # Another host, by name; a redirect to it is one across origins.
    server = Server(f"http://localhost:{foreign.port}", request.param)
    yield server
    server.close()


def _access(kind: str, endpoint: str) -> Access:
    if kind == "s3":
        return AwsAccess(
            access_key_id="AKIA",
            secret_access_key="SECRET",
            session_token="SESSION",
            region="eu-west-1",
            endpoint_urls={"": endpoint},
            path_style=True,
        )
    if kind == "azure":
        return AzureAccess(sas_token="sv=1&sig=SECRET", blob_endpoint=f"{endpoint}/acct")
    return GcpAccess(anonymous=True, project="p", storage_endpoint=endpoint)


URIS = {
    "s3": "s3://bucket/in",
    "azure": "abfss://c@acct.dfs.core.windows.net/in",
    "gcs": "gs://bucket/in",
}


def _store(kind: str, access: Access):
    if kind == "s3":
        return S3Store(URIS[kind], access)
    if kind == "azure":
        return AzureStore(URIS[kind], access, retries=0)
    return GcsStore(URIS[kind], access, retry_seconds=1)


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("operation", ["list", "head", "get", "put", "delete"])
@pytest.mark.parametrize("kind", URIS)
def test_no_store_follows_a_redirect(kind, operation, redirecting, foreign):
    store = _store(kind, _access(kind, f"http://127.0.0.1:{redirecting.port}"))
    calls = {
        "list": lambda: list(store.list()),
        "head": lambda: store.head("k"),
        "get": lambda: store.get("k"),
        "put": lambda: store.put_if_absent("k", b"x"),
        "delete": lambda: store.delete("k"),
    }
    with pytest.raises(OSError, match="in"):
        calls[operation]()
    assert redirecting.seen
    assert foreign.seen == []


def test_a_queue_url_decides_no_address(foreign):
    named = Server()
    access = _access("s3", f"http://127.0.0.1:{named.port}")
    queue = sqs.open_queue(
        f"http://localhost:{foreign.port}/123456789012/files", "", DiscoveryOptions(), access
    )
    with pytest.raises(OSError, match="files"):
        queue.receive(1)
    named.close()
    assert named.seen
    assert foreign.seen == []


@pytest.mark.parametrize("kind", URIS)
def test_deltalake_takes_no_credential_to_where_it_is_redirected(
    kind, redirecting, foreign, monkeypatch
):

    for name, value in to_environment(
        _access(kind, f"http://127.0.0.1:{redirecting.port}")
    ).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(CloudFilesError):
        open_table(URIS[kind].replace("/in", "/table"))
    assert redirecting.seen
    for request in foreign.seen:
        assert "SECRET" not in request
        assert "SESSION" not in request
        assert "authorization" not in request.lower()
