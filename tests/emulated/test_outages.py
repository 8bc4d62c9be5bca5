"""Every operation on every store says truly whether a retry can help.

Real clients talk to a real server that answers with one fault, or to a port that refuses. The table
is operation by fault; in each cell an error of ours with `is_retryable`.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from deltalake import DeltaTable

from airflow_cloudfiles.engine.clouds.aws import queue as sqs
from airflow_cloudfiles.engine.clouds.aws.access import AwsAccess
from airflow_cloudfiles.engine.clouds.aws.store import S3Store
from airflow_cloudfiles.engine.clouds.azure import queue as azure_queue
from airflow_cloudfiles.engine.clouds.azure.access import AzureAccess
from airflow_cloudfiles.engine.clouds.azure.store import AzureStore
from airflow_cloudfiles.engine.clouds.gcp.access import GcpAccess
from airflow_cloudfiles.engine.clouds.gcp.store import GcsStore
from airflow_cloudfiles.engine.discovery.queues.base import as_queue_error
from airflow_cloudfiles.engine.errors import (
    CloudFilesError,
    FileUnreachableError,
    FileUnreadableError,
    ListingError,
    QueueAccessError,
    QueueError,
    ReadError,
    SinkError,
    SourceError,
    SourceNotFoundError,
    StateError,
    StateUnreachableError,
    TargetUnreachableError,
)
from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.job.launch import LocalPython, launch
from airflow_cloudfiles.engine.job.spec import JobSpec
from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
from airflow_cloudfiles.engine.reading.fetch import FetchCounts, fetch
from airflow_cloudfiles.engine.reading.splits import FileRange
from airflow_cloudfiles.engine.schema.log import SchemaLog
from airflow_cloudfiles.engine.state.locks.run_lock import RunLock
from airflow_cloudfiles.engine.storage.access import Access, to_environment
from airflow_cloudfiles.engine.storage.base import ObjectStore
from airflow_cloudfiles.engine.storage.local import LocalStore
from airflow_cloudfiles.engine.storage.memory import MemoryStore
from airflow_cloudfiles.engine.storage.outage import is_transient
from airflow_cloudfiles.engine.tables.delta import commit as delta_commit
from airflow_cloudfiles.engine.tables.delta.opening import open_table

# Clients of the clouds leave closing their sockets to the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
FAULTS: dict[str, bool] = {
    "refused": True,
    "unknown host": True,
    "cut": True,
    "429": True,
    "500": True,
    "503": True,
    "400": False,
    "401": False,
    "403": False,
    "expired": False,
}
"""Each fault, and whether the same thing may succeed later without anybody changing anything."""
URIS = {
    "s3": "s3://bucket/in",
    "azure": "abfss://c@acct.dfs.core.windows.net/in",
    "gcs": "gs://bucket/in",
}
EXPIRED = b"<Error><Code>ExpiredToken</Code><Message>The token has expired</Message></Error>"


class Server:
    """Answers every request with one fault."""

    def __init__(self) -> None:
        self.fault = ""
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if server.fault == "cut":
                    self.close_connection = True
                    return
                body = EXPIRED if server.fault == "expired" else b""
                self.send_response(400 if body else int(server.fault))
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

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


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    found = Server()
    yield found
    found.close()


@pytest.fixture(autouse=True)
def _few_tries(monkeypatch):
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    for name in ("AZURE_STORAGE_CONNECTION_STRING", "STORAGE_EMULATOR_HOST", "CLOUDFILES_ACCESS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def address(server) -> Iterator[Callable[[str], str]]:
    """Gives the address at which a fault is met; a port that is bound and does not listen."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))

        def of(fault: str) -> str:
            if fault == "refused":
                return f"http://127.0.0.1:{closed.getsockname()[1]}"
            if fault == "unknown host":
                return "http://no-such-host.invalid"
            server.fault = fault
            return f"http://127.0.0.1:{server.port}"

        yield of


def _access(kind: str, endpoint: str) -> Access:
    if kind == "s3":
        keys = {"access_key_id": "AKIA", "secret_access_key": "SECRET", "region": "eu-west-1"}
        return AwsAccess(**keys, endpoint_urls={"": endpoint}, path_style=True)
    if kind == "azure":
        return AzureAccess(
            sas_token="sig=x", blob_endpoint=f"{endpoint}/acct", queue_endpoint=f"{endpoint}/acct"
        )
    return GcpAccess(anonymous=True, project="p", storage_endpoint=endpoint)


def _store(kind: str, access: Access) -> ObjectStore:
    if kind == "s3":
        return S3Store(URIS[kind], access)
    if kind == "azure":
        return AzureStore(URIS[kind], access, retries=0)
    return GcsStore(URIS[kind], access, retry_seconds=0.1)


def _read(store: ObjectStore) -> None:
    part = FileRange(FileEntry("f.json", 3, 1, ""))

    def use(file: Any) -> Iterator[bytes]:
        yield from file.blocks()

    list(fetch(store, part, FetchCounts(), use, ignore_missing=True, ignore_corrupt=True))


def _discover(store: ObjectStore) -> None:
    state = MemoryStore(f"memory://{os.urandom(8).hex()}")
    Intake(source=store, state=state, format="json").discover()


def _open_state(store: ObjectStore) -> None:
    source = MemoryStore(f"memory://{os.urandom(8).hex()}")
    Intake(source=source, state=store, format="json").discover()


OPERATIONS: dict[str, tuple[Callable[[ObjectStore], object], type[CloudFilesError]]] = {
    "open the state": (_open_state, StateError),
    "take the lock": (lambda store: RunLock(store).acquire(), StateError),
    "read the schema log": (lambda store: SchemaLog(store, "s").latest(), StateError),
    "list the source": (_discover, SourceError),
    "read a file": (_read, ReadError),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("kind", URIS)
def test_a_fault_of_a_store_says_whether_a_retry_helps(kind, operation, fault, address):
    call, expected = OPERATIONS[operation]
    store = _store(kind, _access(kind, address(fault)))
    with pytest.raises(expected) as caught:
        call(store)
    assert caught.value.is_retryable is FAULTS[fault], repr(caught.value)
    assert len(str(caught.value)) < 900


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault != "cut"])
@pytest.mark.parametrize("kind", URIS)
def test_a_fault_of_the_target_says_whether_a_retry_helps(kind, fault, address, monkeypatch):
    access = _access(kind, address(fault))
    monkeypatch.setattr(delta_commit.DeltaLocation, "store", lambda _: _store(kind, access))
    with pytest.raises(SinkError) as caught:
        open_table(f"{URIS[kind]}/table")
    assert caught.value.is_retryable is FAULTS[fault], repr(caught.value)


@pytest.mark.parametrize("fault", ["refused", "403", "400"])
@pytest.mark.parametrize("kind", URIS)
def test_what_deltalake_says_is_read(kind, fault, address, monkeypatch):
    for name, value in to_environment(_access(kind, address(fault))).items():
        monkeypatch.setenv(name, value)
    location = delta_commit.DeltaLocation.of(f"{URIS[kind]}/table")
    quick = {"max_retries": "0", "retry_timeout": "1s"}
    with pytest.raises(SinkError) as caught, location.translate_errors("cannot be opened"):
        DeltaTable(location.table_uri, storage_options={**location.storage_options(), **quick})
    assert caught.value.is_retryable is FAULTS[fault], repr(caught.value)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("kind", ["s3", "azure"])
def test_a_fault_of_a_queue_says_whether_a_retry_helps(kind, fault, address, monkeypatch):
    monkeypatch.setattr("airflow_cloudfiles.engine.clouds.aws.queue._FIRST_PAUSE_SECONDS", 0.001)
    access = _access(kind, address(fault))
    if kind == "s3":
        queue = sqs.open_queue(
            "https://sqs.eu-west-1.amazonaws.com/1/q", "", DiscoveryOptions(), access
        )
    else:
        queue = azure_queue.open_queue("files", URIS["azure"], DiscoveryOptions(), access)
        queue._client._config.retry_policy.total_retries = 0
    with pytest.raises(OSError, match=r"q|files") as caught:
        queue.receive(1)
    error = as_queue_error(caught.value)
    assert isinstance(error, QueueError if FAULTS[fault] else QueueAccessError), repr(error)
    assert error.is_retryable is FAULTS[fault]


@pytest.mark.parametrize("fault", ["refused", "403"])
def test_a_state_that_does_not_answer_when_a_run_starts_is_tried_again(fault, address):
    spec = JobSpec(
        kind="ingest",
        source="/in",
        format="json",
        checkpoint_location="s3://bucket/state",
        run_id="r",
        target="/table",
    )
    with pytest.raises(StateError) as caught:
        launch(spec, LocalPython(), on_log=print, access=_access("s3", address(fault)))
    assert caught.value.is_retryable is FAULTS[fault]
    assert isinstance(caught.value, StateUnreachableError) is FAULTS[fault]


@pytest.mark.parametrize("kind", ["azure", "s3"])
def test_a_bucket_that_is_not_there_is_not_tried_again(kind, address):
    store = _store(kind, _access(kind, address("404")))
    with pytest.raises((SourceError, ReadError)) as caught:
        _discover(store)
    assert not caught.value.is_retryable, repr(caught.value)


# Disks ----------------------------------------------------------------------------------------


@pytest.mark.skipif(os.geteuid() == 0, reason="root may do everything")
def test_permissions_of_a_disk_are_final(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(StateError) as caught:
        RunLock(LocalStore(str(tmp_path / "state"))).acquire()
    assert not caught.value.is_retryable


def test_a_state_below_a_file_is_final(tmp_path):
    (tmp_path / "file").write_text("")
    for operation in ("open the state", "take the lock"):
        with pytest.raises(StateError) as caught:
            OPERATIONS[operation][0](LocalStore(str(tmp_path / "file" / "state")))
        assert not caught.value.is_retryable


@pytest.mark.parametrize(
    ("failure", "passes"),
    [
        (OSError(28, "No space left on device"), True),
        (OSError(5, "Input/output error"), True),
        (OSError(116, "Stale file handle"), True),
        (ConnectionResetError(104, "reset"), True),
        (TimeoutError("no answer"), True),
        (PermissionError(13, "Permission denied"), False),
        (OSError(30, "Read-only file system"), False),
        (FileNotFoundError(2, "No such file"), False),
        (NotADirectoryError(20, "Not a directory"), False),
        (OSError(36, "File name too long"), False),
        (OSError("the service refused the request"), False),
    ],
)
def test_failures_of_a_disk(failure, passes):
    assert is_transient(failure) is passes


# The classes ----------------------------------------------------------------------------------


def test_names_say_what_the_tables_rely_on():
    for kind in (
        FileUnreachableError,
        ListingError,
        QueueError,
        StateUnreachableError,
        TargetUnreachableError,
    ):
        assert kind.is_retryable
    for kind in (FileUnreadableError, SourceNotFoundError, StateError, QueueAccessError):
        assert not kind.is_retryable
