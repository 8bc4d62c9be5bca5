"""What S3 and SQS answer, as recorded from Amazon's own, means what the package takes it for.

Status, code and headers are facts that the maintainers of localstack recorded from AWS in 2025 and
2026 (`*.snapshot.json` beside their tests of S3 and SQS); texts are not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from airflow_cloudfiles.engine.clouds.aws import queue as sqs
from airflow_cloudfiles.engine.clouds.aws import store as s3
from airflow_cloudfiles.engine.clouds.aws.access import AwsAccess
from airflow_cloudfiles.engine.clouds.aws.store import S3Store
from airflow_cloudfiles.engine.discovery.queues.base import Message
from airflow_cloudfiles.engine.errors import StateError
from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.storage.base import (
    ObjectChangedError,
    ObjectNotFoundError,
    UnsupportedRequestError,
)
from airflow_cloudfiles.engine.storage.outage import ArchivedObjectError, is_transient
from airflow_cloudfiles.engine.storage.small_objects import require_conditional_put
from tests.support.scripted_server import Scripted, ScriptedServer
from tests.support.serving import serving

OK = Scripted(200, headers=(("ETag", '"new"'),))
GONE = Scripted(404)
"""A question with HEAD gets no body."""
THERE = Scripted(200, headers=(("ETag", '"e"'), ("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")))
ENTRY = FileEntry("a", 0, 1_767_225_600_000_000, "e")


def error(status: int, code: str, **more: str) -> Scripted:
    """An answer of S3 that is an error."""
    fields = {"Code": code, "Message": "Text.", **more}
    return Scripted(
        status, f"<Error>{''.join(f'<{k}>{v}</{k}>' for k, v in fields.items())}</Error>".encode()
    )


def failed(condition: str) -> Scripted:
    """An answer that a condition did not hold."""
    return error(412, "PreconditionFailed", Condition=condition)


NO_KEY = error(404, "NoSuchKey", Key="a")
CONFLICT = error(409, "ConditionalRequestConflict", Condition="If-None-Match", Key="a")
UNSUPPORTED = error(501, "NotImplemented", Header="If-None-Match")


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedServer]:
    """One server, so that one client is made."""
    with serving(ScriptedServer()) as found:
        yield found


@pytest.fixture
def access(server: ScriptedServer) -> AwsAccess:
    return AwsAccess(
        access_key_id="k",
        secret_access_key="s",
        region="us-east-1",
        endpoint_urls={"": server.endpoint},
        path_style=True,
    )


class Answering:
    """A store whose server gives the answers of a list.

    Attributes:
        store: The store.
        server: The server, with what was asked.
    """

    def __init__(self, server: ScriptedServer, access: AwsAccess) -> None:
        store = open_store("s3://bucket", access)
        assert isinstance(store, S3Store)
        self.store, self.server = store, server

    @contextmanager
    def __call__(self, *answers: Scripted) -> Iterator[S3Store]:
        """Give these answers, and see that all are asked for."""
        self.server.answers, self.server.asked = list(answers), []
        yield self.store
        assert self.server.answers == []

    def header(self, name: str) -> list[str | None]:
        """A header of each request."""
        return [each.headers.get(name) for each in self.server.asked]


@pytest.fixture
def answering(server: ScriptedServer, access: AwsAccess) -> Answering:
    """Give the answers that a test says."""
    return Answering(server, access)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the client repeat a request once, and nothing wait."""
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "2")
    monkeypatch.setattr("time.sleep", lambda _: None)


# ── conditional writes ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("answers", "is_created"),
    [
        ([OK], True),
        ([failed("If-None-Match")], False),
        ([CONFLICT, OK], True),  # another write or deletion was under way
        ([CONFLICT, CONFLICT, failed("If-None-Match")], False),
        ([error(503, "SlowDown"), OK], True),
        ([error(500, "InternalError"), failed("If-None-Match")], False),
    ],
)
def test_an_object_is_created_once(
    answering: Answering, answers: list[Scripted], is_created: bool
) -> None:
    with answering(*answers) as store:
        assert store.put_if_absent("a", b"1") is is_created
    assert set(answering.header("if-none-match")) == {"*"}


@pytest.mark.parametrize(
    ("answers", "is_replaced"),
    [
        ([OK], True),
        ([NO_KEY, GONE], False),
        ([failed("If-Match"), GONE], False),
        ([failed("If-Match"), OK], False),  # it is another version by now
        ([error(409, "ConditionalRequestConflict", Condition="If-Match"), OK], True),
    ],
)
def test_a_version_is_replaced_once(
    answering: Answering, answers: list[Scripted], is_replaced: bool
) -> None:
    answers = [
        each._replace(headers=(*THERE.headers[1:], ("ETag", '"other"'))) if each is OK else each
        for each in answers
    ]
    with answering(*answers) as store:
        assert store.put_if_match("a", b"1", "e") is is_replaced
    assert answering.header("if-match")[0] == '"e"'


def test_a_server_that_takes_etags_without_quotes_only_gets_them_so(answering: Answering) -> None:
    """Ceph and DigitalOcean Spaces answer 412 to the etag that they give themselves."""
    with answering(failed("If-Match"), THERE, OK) as store:
        assert store.put_if_match("a", b"1", "e") is True
    assert answering.header("if-match") == ['"e"', None, "e"]
    with answering(failed("If-Match"), THERE, failed("If-Match")) as store:
        assert store.put_if_match("a", b"1", "e") is False


def test_a_put_that_is_not_modified_is_refused(answering: Answering) -> None:
    """MinIO answered so before 2024 where it should have said 412."""
    with answering(Scripted(304)) as store:
        assert store.put_if_absent("a", b"1") is False


def test_a_server_that_says_it_has_no_conditions_is_refused(answering: Answering) -> None:
    """Amazon itself answered so before 2024, and servers that follow it still do."""
    with (
        answering(UNSUPPORTED) as store,
        pytest.raises(StateError, match=r"s3://bucket refuses If-None-Match"),
    ):
        require_conditional_put(store)
    with answering(UNSUPPORTED) as store, pytest.raises(UnsupportedRequestError) as raised:
        store.put_if_absent("a", b"1")
    assert not is_transient(raised.value)


# ── deletions and copies ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("answers", "raised"),
    [
        ([Scripted(204)], None),
        ([failed("If-Match"), THERE], ObjectChangedError),
        ([failed("If-Match"), GONE], ObjectNotFoundError),
        ([NO_KEY], ObjectNotFoundError),
        ([error(501, "NotImplemented", Header="If-Match"), THERE, Scripted(204)], None),
    ],
)
def test_a_version_is_deleted(
    answering: Answering, answers: list[Scripted], raised: type[Exception] | None
) -> None:
    with answering(*answers) as store:
        if raised is None:
            store.delete_version(ENTRY)
        else:
            with pytest.raises(raised):
                store.delete_version(ENTRY)
    assert answering.header("if-match")[0] == '"e"'


COPIED = Scripted(200, b"<CopyObjectResult><ETag>&quot;e&quot;</ETag></CopyObjectResult>")
INSIDE = error(200, "InternalError")
"""Errors while S3 copies come with the status 200, since its header was sent before."""


@pytest.mark.parametrize(
    ("answers", "outcome"),
    [
        ([COPIED], True),
        ([INSIDE, COPIED], True),
        ([INSIDE, INSIDE], ConnectionError),
        ([failed("If-None-Match"), THERE], False),
        ([failed("x-amz-copy-source-If-Match"), GONE, THERE], ObjectChangedError),
        ([NO_KEY, GONE, GONE], ObjectNotFoundError),
        ([CONFLICT], ConnectionError),
    ],
)
def test_a_version_is_copied(
    answering: Answering, answers: list[Scripted], outcome: bool | type[Exception]
) -> None:
    with answering(*answers) as store:
        if isinstance(outcome, bool):
            assert store.copy_version(ENTRY, store, "b") is outcome
        else:
            with pytest.raises(outcome):
                store.copy_version(ENTRY, store, "b")
    asked = answering.server.asked[0].headers
    assert (asked["if-none-match"], asked["x-amz-copy-source-if-match"]) == ("*", '"e"')


STARTED = Scripted(
    200, b"<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>"
)
PART = Scripted(200, b"<CopyPartResult><ETag>&quot;p&quot;</ETag></CopyPartResult>")
WHOLE = Scripted(
    200, b"<CompleteMultipartUploadResult><Key>b</Key></CompleteMultipartUploadResult>"
)


@pytest.mark.parametrize(
    ("answers", "outcome"),
    [
        ([PART, PART, WHOLE], True),
        ([PART, PART, INSIDE, WHOLE], True),
        ([PART, PART, INSIDE, INSIDE, Scripted(204)], ConnectionError),
        ([PART, PART, failed("If-None-Match"), Scripted(204), THERE], False),
        ([PART, PART, CONFLICT, Scripted(204)], ConnectionError),
        (
            [PART, failed("x-amz-copy-source-If-Match"), Scripted(204), GONE, THERE],
            ObjectChangedError,
        ),
        ([INSIDE, PART, PART, WHOLE], True),
    ],
)
def test_a_large_version_is_copied_in_parts(
    answering: Answering,
    answers: list[Scripted],
    outcome: bool | type[Exception],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(s3, "COPIED_AT_ONCE", 1)
    monkeypatch.setattr(s3, "PART_BYTES", 2)
    with answering(THERE, STARTED, *answers) as store:
        entry = FileEntry("a", 4, ENTRY.modification_time_us, "e")
        if isinstance(outcome, bool):
            assert store.copy_version(entry, store, "b") is outcome
        else:
            with pytest.raises(outcome):
                store.copy_version(entry, store, "b")
    ended = [each for each in answering.server.asked if each.method == "DELETE"]
    assert len(ended) == (outcome is not True)  # what was begun is given up


# ── reads and listings ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (error(416, "InvalidRange", ActualObjectSize="10", RangeRequested="bytes=99-99"), b""),
        (failed("If-Match"), ObjectChangedError),
        (NO_KEY, ObjectNotFoundError),
        (error(403, "InvalidObjectState", StorageClass="DEEP_ARCHIVE"), ArchivedObjectError),
        (error(404, "NoSuchBucket", BucketName="bucket"), FileNotFoundError),
    ],
)
def test_a_range_is_read(
    answering: Answering, answer: Scripted, outcome: bytes | type[Exception]
) -> None:
    with answering(answer) as store:
        if isinstance(outcome, bytes):
            assert store.get_range("a", 99, 1) == outcome
        else:
            with pytest.raises(outcome):
                store.get_range("a", 99, 1, etag="e")


def page(*keys: str, token: str = "") -> Scripted:
    """A page of a listing with keys as S3 encodes them."""
    one = "<Contents><Key>{}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
    one += "<ETag>&quot;e&quot;</ETag><Size>1</Size></Contents>"
    more = f"<NextContinuationToken>{token}</NextContinuationToken>" if token else ""
    body = "".join(one.format(key) for key in keys)
    state = f"<IsTruncated>{'true' if token else 'false'}</IsTruncated>{more}"
    encoding = "<EncodingType>url</EncodingType>"
    return Scripted(200, f"<ListBucketResult>{state}{encoding}{body}</ListBucketResult>".encode())


def test_listed_keys_are_decoded_and_pages_followed(answering: Answering) -> None:
    first = page("a/%F0%9F%98%80", "date%3D2026-01-01/x", token="1+/=")
    second = page("file%2Fname", "test%25percent", "test+key//", "test%2Bkey")
    with answering(first, second) as store:
        found = [entry.path for entry in store.list(ordered=False)]
    assert found == [
        "a/\U0001f600",
        "date=2026-01-01/x",
        "file/name",
        "test%percent",
        "test key//",
        "test+key",
    ]
    assert "encoding-type=url" in answering.server.asked[0].path
    assert "continuation-token=1%2B%2F%3D" in answering.server.asked[1].path


# ── SQS ─────────────────────────────────────────────────────────────────────────────────────────


def refusal(status: int, code: str, short: str) -> Scripted:
    """An answer of SQS that is an error; the old code is in a header."""
    body = {"__type": f"com.amazonaws.sqs#{short}", "message": "Text."}
    header = ("x-amzn-query-error", f"{code};Sender")
    return Scripted(status, json.dumps(body).encode(), (header,))


@pytest.mark.parametrize(
    ("answer", "raised", "passes"),
    [
        (
            refusal(400, "AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist"),
            FileNotFoundError,
            False,
        ),
        (refusal(403, "AccessDenied", "AccessDeniedException"), PermissionError, False),
        (refusal(400, "InvalidParameterValue", "InvalidParameterValueException"), OSError, False),
        (refusal(403, "RequestThrottled", "RequestThrottled"), ConnectionError, True),
        (refusal(403, "OverLimit", "OverLimit"), ConnectionError, True),
    ],
)
def test_a_queue_refuses(
    access: AwsAccess,
    server: ScriptedServer,
    answer: Scripted,
    raised: type[OSError],
    passes: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sqs, "_TRIES", 1)
    server.answers = [answer, answer]  # the client itself repeats some
    queue = sqs.open_queue(f"{server.endpoint}/1/q", "", DiscoveryOptions(), access)
    with pytest.raises(raised) as failure:
        queue.receive(1)
    assert is_transient(failure.value) is passes


def test_a_batch_that_succeeds_in_part_gives_back_the_rest(
    access: AwsAccess, server: ScriptedServer
) -> None:
    code = {"SenderFault": True, "Code": "ReceiptHandleIsInvalid"}
    body: dict[str, Any] = {"Successful": [{"Id": "0"}], "Failed": [{"Id": "1", **code}]}
    server.answers = [Scripted(200, json.dumps(body).encode())]
    queue = sqs.open_queue(f"{server.endpoint}/1/q", "", DiscoveryOptions(), access)
    messages = [Message("a", "1", b""), Message("b", "2", b"")]
    assert queue.delete(messages) == messages[1:]
