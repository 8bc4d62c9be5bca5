"""What only S3, and servers that speak its protocol, can do to us."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from dataclasses import replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from airflow_cloudfiles.engine.clouds.aws import session as aws_session
from airflow_cloudfiles.engine.clouds.aws.access import REQUEST_ARGUMENTS, AwsAccess
from airflow_cloudfiles.engine.clouds.aws.session import aws_client
from airflow_cloudfiles.engine.clouds.aws.store import S3Store
from airflow_cloudfiles.engine.errors import OptionError, StateError, UnsupportedOptionError
from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.schema.log import SchemaLog
from airflow_cloudfiles.engine.state.numbered_log import NumberedLog
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.storage.access import ENVIRONMENT, to_environment
from airflow_cloudfiles.engine.storage.base import UnorderedListingError
from airflow_cloudfiles.engine.storage.memory import MemoryStore
from airflow_cloudfiles.engine.storage.small_objects import require_conditional_put
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from tests.support.serving import serving

ROLE = "arn:aws:iam::000000000000:role/reader"


@pytest.fixture
def impatient(monkeypatch, request):
    """Two tries, and one second for an answer that never comes: what happens afterwards matters."""
    named = getattr(request.node, "callspec", None)
    never = named is None or named.params["name"] == "silent"
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "2")
    monkeypatch.setattr(aws_session, "READ_SECONDS", 1 if never else 30)


@pytest.fixture
def proxied(aws, microburst):
    """A bucket behind a proxy: (the store, the proxy, the store without the proxy)."""
    proxy = microburst(aws.endpoint)
    uri = aws.bucket()
    return open_store(uri, aws.access_through(proxy.endpoint)), proxy, open_store(uri, aws.access)


def fault(operation, times=1, **what):
    return {"service": "s3", "operation": operation, "times": times, **what}


def keys(store, **wanted):
    return [entry.path for entry in store.list(**wanted)]


def test_2500_objects_cost_three_requests(aws_serving, microburst, tmp_path):  # B87
    names = [f"day={number % 50:02}/{number:04}.json" for number in range(2500)]
    for name in names:
        file = tmp_path / "data/landing/in" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("{}")
    aws = aws_serving(tmp_path / "data")
    proxy = microburst(aws.endpoint)
    proxy.rules([{"service": "s3", "operation": "ListObjectsV2", "latency": 1}])
    store = open_store("s3://landing/in", aws.access_through(proxy.endpoint))
    assert keys(store) == sorted(names)
    assert store.requests == {"list": 3}
    assert len(proxy.fired()) == 3
    assert keys(store, start_after=sorted(names)[-3]) == sorted(names)[-2:]
    assert store.requests == {"list": 4}


@pytest.mark.parametrize(
    "what",
    [
        {"error": {"code": "SlowDown", "status": 503}},
        {"error": {"code": "InternalError", "status": 500}},
        {"reset": True},
        {"response": {"abort_frac": 0.3}},
        {"response": {"truncate_frac": 0.5}},
    ],
    ids=["throttled", "500", "reset", "aborted", "truncated"],
)
def test_a_page_that_fails_is_fetched_again(proxied, what):  # B87
    store, proxy, direct = proxied
    for number in range(20):
        direct.put(f"{number:02}", b"x" * 50)
    proxy.rules([fault("ListObjectsV2", **what)])
    assert keys(store) == keys(direct)
    assert len(proxy.fired()) == 1


@pytest.mark.parametrize(
    "what",
    [
        {"error": {"code": "SlowDown", "status": 503}},
        {"reset": True},
        {"response": {"abort_frac": 0.3}},
    ],
    ids=["throttled", "reset", "aborted"],
)
def test_a_read_that_fails_is_repeated(proxied, what):
    store, proxy, direct = proxied
    direct.put("a", b"x" * 10_000)
    proxy.rules([fault("GetObject", **what)])
    assert store.get("a") == b"x" * 10_000
    assert len(proxy.fired()) == 1


@pytest.mark.parametrize(
    "what",
    [
        {"error": {"code": "SlowDown", "status": 503}},
        {"error": {"code": "ConditionalRequestConflict", "status": 409}},
        {"reset": True},
    ],
    ids=["throttled", "conflict", "reset"],
)
def test_a_write_that_fails_is_repeated(proxied, what):
    store, proxy, direct = proxied
    proxy.rules([fault("PutObject", **what)])
    assert store.put_if_absent("a", b"1") is True
    assert direct.get("a") == b"1"
    assert len(proxy.fired()) == 1


CALLS = {
    "ListObjectsV2": lambda store: list(store.list()),
    "HeadObject": lambda store: store.head("a"),
    "GetObject": lambda store: store.get("a"),
    "PutObject": lambda store: store.put_if_absent("b", b""),
}


FAULTS = {
    "throttled": (
        {"error": {"code": "SlowDown", "status": 503}},
        OSError,
        "the service failed|503",
    ),
    "reset": ({"reset": True}, ConnectionError, "the connection failed"),
    "silent": ({"timeout_ms": 2000}, TimeoutError, "did not answer in time"),
    "denied": (
        {"error": {"code": "AccessDenied", "status": 403}},
        PermissionError,
        "permission s3:",
    ),
}
LONG = {("silent", "HeadObject"), ("silent", "GetObject")}  # waiting for two of the four will do


@pytest.mark.parametrize(
    ("name", "operation"),
    [(name, operation) for name in FAULTS for operation in CALLS if (name, operation) not in LONG],
)
def test_what_does_not_heal_ends_as_a_readable_error(proxied, impatient, name, operation):
    what, error, sentence = FAULTS[name]
    store, proxy, direct = proxied
    direct.put("a", b"x")
    proxy.rules([fault(operation, times=99, **what)])
    with pytest.raises(error, match=sentence) as failed:
        CALLS[operation](store)
    assert str(failed.value).startswith(store.uri)
    assert "test-secret" not in str(failed.value)


def test_a_listing_never_ends_early(proxied, impatient):
    store, proxy, direct = proxied
    for number in range(20):
        direct.put(f"{number:02}", b"x" * 50)
    proxy.rules([fault("ListObjectsV2", times=99, response={"truncate_frac": 0.5})])
    with pytest.raises(OSError, match="could not be listed"):
        keys(store)


def test_conflicts_that_do_not_end_are_an_error(proxied):
    store, proxy, _ = proxied
    proxy.rules(
        [fault("PutObject", 99, error={"code": "ConditionalRequestConflict", "status": 409})]
    )
    with pytest.raises(OSError, match="other writers kept changing it"):
        store.put_if_absent("a", b"1")
    assert store.requests == {"put": 5}


@pytest.mark.parametrize("attempts", ["1", "3"])
def test_a_log_knows_that_it_won_though_the_answer_was_lost(aws, microburst, monkeypatch, attempts):
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", attempts)
    proxy = microburst(aws.endpoint.removeprefix("http://"), "tcp")
    store = open_store(aws.bucket(), aws.access_through(proxy.endpoint))
    cut = {"cut_reply": {"after_bytes": 5}, "times": 1}
    proxy.rules([{"service": "tcp", "operation": "conn", "payload": "PUT /.*/log/0", **cut}])
    assert NumberedLog(store, "log").append(0, {"by": "me"}) is True
    assert proxy.fired()
    assert NumberedLog(store, "log").append(0, {"by": "other"}) is False
    assert NumberedLog(store, "log").read(0).header["by"] == "me"


RACE = """
import sys
from airflow_cloudfiles.engine.storage import open_store
store = open_store(sys.argv[1])
print(*(n for n in range(50) if store.put_if_absent(f"log/{n}", sys.argv[2].encode())))
"""


def test_of_three_processes_one_creates_each_object(aws):
    uri = aws.bucket()
    children = {
        name: subprocess.Popen(
            [sys.executable, "-c", RACE, uri, name],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **to_environment(aws.access)},
        )
        for name in ("one", "two", "three")
    }
    created = {name: child.communicate()[0].split() for name, child in children.items()}
    assert sorted(number for numbers in created.values() for number in numbers) == sorted(
        map(str, range(50))
    )
    store = open_store(uri, aws.access)
    for name, numbers in created.items():
        assert all(store.get(f"log/{number}") == name.encode() for number in numbers)


def test_a_server_that_lists_out_of_order_is_refused(seaweed):
    store = open_store(seaweed.bucket(), seaweed.access)
    for key in ("data/x", "data-y"):
        store.put(key, b"")
    with pytest.raises(OSError, match="does not list keys in order"):
        keys(store)


def test_a_bucket_that_is_not_there_is_not_found(aws):
    store = open_store(f"s3://none-{uuid.uuid4().hex}/x", aws.access)
    assert not store.is_folder()
    with pytest.raises(FileNotFoundError, match="no such bucket"):
        keys(store)
    with pytest.raises(FileNotFoundError, match="no such bucket"):
        store.put("a", b"")
    assert open_store(aws.bucket(), aws.access).is_folder()


class Recorded:
    """A client that notes what it is asked for."""

    def __init__(self, *names):
        self.asked = []
        self.names = names

    def list_objects_v2(self, **asked):
        self.asked.append(asked)
        now = datetime(2024, 1, 1, tzinfo=UTC)
        contents = [{"Key": name, "Size": 1, "LastModified": now} for name in self.names]
        return {"IsTruncated": False, "Contents": contents}


def test_a_directory_bucket_is_asked_for_whole_folders_and_for_no_order():
    """`StartAfter` is no word of theirs, and a prefix ends with a slash."""
    client = Recorded("in/dt=2/b", "in/dt=1/a", "in/x")

    class Bucket(S3Store):
        def _client(self):
            return client

    store = Bucket("s3://name--usw2-az1--x-s3/in")
    assert store.key_order is None
    found = store.list("dt=", ordered=False)
    assert [entry.path for entry in found] == ["dt=2/b", "dt=1/a"]
    assert store.is_folder()
    assert all(asked["Prefix"] == "in/" and "StartAfter" not in asked for asked in client.asked)
    for ask in (store.list, lambda: store.key_after("a")):
        with pytest.raises(UnorderedListingError, match="can be a source"):
            ask()


def test_nothing_but_a_source_may_be_in_a_directory_bucket(tmp_path):
    bucket = "s3://name--usw2-az1--x-s3/a"
    for keep in (
        lambda: Intake.open(source=str(tmp_path), format="json", checkpoint_location=bucket),
        lambda: SchemaLog(open_store(bucket), "source"),
        DeltaLocation.of(bucket).store,
    ):
        with pytest.raises(UnsupportedOptionError, match=r"is in a directory bucket.*general"):
            keep()


def test_the_order_of_amazon_is_promised_and_that_of_others_is_not(aws):
    access = AwsAccess(access_key_id="a", secret_access_key="b", region="eu-west-1")
    assert open_store("s3://bucket", access).is_order_promised
    assert not open_store("s3://bucket", aws.access).is_order_promised


class Lying(MemoryStore):
    """A server that takes the condition and ignores it."""

    def put_if_absent(self, key, content):
        self.put(key, content)
        return True


class HalfLying(Lying):
    """One that even says what it should have done."""

    def put_if_absent(self, key, content):
        return super().put_if_absent(key, content) and content == b"first"


@pytest.mark.parametrize("lying", [Lying, HalfLying])
def test_a_store_that_ignores_conditions_is_refused(lying):
    store = lying(f"memory://{uuid.uuid4().hex}")
    with pytest.raises(StateError, match=f"{store.uri} ignores If-None-Match"):
        require_conditional_put(store)
    assert keys(store) == []


def test_a_role_is_assumed(aws):
    access = replace(aws.access, role_arn=ROLE, role_session_name="me", role_external_id="secret")
    told = aws_client("sts", access).get_caller_identity()
    assert told["Arn"].endswith("assumed-role/reader/me")
    store = open_store(aws.bucket(), access)
    store.put("a", b"1")
    assert store.get("a") == b"1"


def test_a_client_is_made_once_for_each_access(aws):
    assert aws_client("s3", aws.access) is aws_client("s3", replace(aws.access))
    assert aws_client("s3", aws.access) is not aws_client("sqs", aws.access)
    other = replace(aws.access, access_key_id="other")
    assert aws_client("s3", aws.access) is not aws_client("s3", other)


def test_without_an_access_the_environment_decides(aws, monkeypatch):
    uri = aws.bucket()
    open_store(uri, aws.access).put("a", b"1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", aws.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test-secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    assert open_store(uri).get("a") == b"1"


def test_without_credentials_the_error_says_so(aws, monkeypatch, tmp_path):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    nobody = AwsAccess(region="us-east-1", endpoint_urls={"": aws.endpoint}, path_style=True)
    with pytest.raises(PermissionError, match="no credentials for AWS"):
        open_store("s3://bucket", nobody).get("a")
    with pytest.raises(OptionError, match="no credentials to assume"):
        aws_client("s3", replace(nobody, role_arn=ROLE))
    with pytest.raises(OptionError, match=r"cannot be used.*nobody"):
        aws_client("s3", replace(nobody, profile="nobody"))


def test_pages_hold_at_most_a_thousand_objects():
    assert S3Store("s3://bucket").page_size == 1000


class _Asked(BaseHTTPRequestHandler):
    """Answers every request, and keeps its headers."""

    protocol_version = "HTTP/1.1"

    def _answer(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked[self.command] = dict(self.headers)
        body = b""
        if self.command == "GET":
            body = b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", '"e"')
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = _answer  # noqa: N815 - the server's

    def log_message(self, *_):
        pass


@pytest.mark.parametrize("is_of_environment", [False, True])
def test_requests_say_who_pays_and_how_is_encrypted(monkeypatch, is_of_environment):
    said = {
        "RequestPayer": "requester",
        "ServerSideEncryption": "aws:kms",
        "SSEKMSKeyId": "the-key",
        "BucketKeyEnabled": True,
    }
    if is_of_environment:
        for name, value in said.items():
            monkeypatch.setenv(REQUEST_ARGUMENTS[name], str(value))
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), _Asked)) as server:
        server.asked = {}
        access = AwsAccess(
            access_key_id="k",
            secret_access_key="s",
            region="us-east-1",
            endpoint_urls={"": f"http://127.0.0.1:{server.server_port}"},
            path_style=True,
            checksums={"request_checksum_calculation": "when_required"},
            request_arguments={} if is_of_environment else said,
        )
        store = open_store("s3://bucket", access)
        store.put("a", b"1")
        assert list(store.list()) == []
    asked = server.asked
    assert {method: headers.get("x-amz-request-payer") for method, headers in asked.items()} == {
        "PUT": "requester",
        "GET": "requester",
    }
    assert asked["PUT"]["x-amz-server-side-encryption"] == "aws:kms"
    assert asked["PUT"]["x-amz-server-side-encryption-aws-kms-key-id"] == "the-key"
    assert asked["PUT"]["x-amz-server-side-encryption-bucket-key-enabled"] == "true"
    assert not any("checksum" in name.lower() for name in asked["PUT"])


def test_a_table_says_the_same(aws, monkeypatch):
    said = {"RequestPayer": "requester", "ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "key"}
    access = replace(aws.access, request_arguments={**said, "BucketKeyEnabled": True})
    monkeypatch.setenv(ENVIRONMENT, to_environment(access)[ENVIRONMENT])
    options = DeltaLocation.of("s3://bucket/table").storage_options()
    named = {name: options[name] for name in options if name.startswith(("aws_s", "aws_request"))}
    named.pop("aws_secret_access_key")
    assert named == {
        "aws_request_payer": "true",
        "aws_server_side_encryption": "aws:kms",
        "aws_sse_kms_key_id": "key",
        "aws_sse_bucket_key_enabled": "true",
    }
