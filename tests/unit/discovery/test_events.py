"""Whatever a message holds, it is files, or ignored, or poison; never an exception."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_cloudfiles.engine.clouds.aws import queue as events_aws
from airflow_cloudfiles.engine.clouds.azure import queue as events_azure
from airflow_cloudfiles.engine.clouds.gcp import queue as events_gcp
from airflow_cloudfiles.engine.discovery.events import (
    MAX_BODY_BYTES,
    FileEvent,
    IgnoredMessage,
    Poison,
    sample,
)
from airflow_cloudfiles.engine.discovery.queues.base import Message
from tests.support.discovery.notified import azure_event, eventbridge_event, logged_call, s3_event
from tests.support.laws import examples

PARSERS = [events_aws.parse, events_azure.parse, events_gcp.parse]
FINALIZE = {"eventType": "OBJECT_FINALIZE", "bucketId": "b", "objectId": "in/x"}


def message(body, **attributes):
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    return Message("id", "receipt", body, attributes)


def check(result) -> None:
    assert isinstance(result, IgnoredMessage | Poison) or (
        result
        and all(
            isinstance(event, FileEvent)
            and event.location.partition("://")[2].partition("/")[2]
            and "\0" not in event.location
            and (event.size is None or event.size >= 0)
            and isinstance(event.time_us, int)
            for event in result
        )
    )


# ── anything at all ─────────────────────────────────────────────────────────────────────────────

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.law
@settings(max_examples=examples(150), deadline=None)
@given(st.binary() | json_values.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_read_without_an_exception(body):
    for parse in PARSERS:
        check(parse(Message("id", "receipt", body, FINALIZE)))
        check(parse(Message("id", "receipt", body)))


def damaged(value, path, replacement):
    """A copy of a JSON value with the part at a path replaced, or taken out."""
    if not path or not isinstance(value, dict | list) or not value:
        return replacement
    keys = sorted(value) if isinstance(value, dict) else range(len(value))
    key = keys[path[0] % len(keys)]
    copy = value.copy()
    if len(path) == 1 and isinstance(copy, dict) and replacement == "(absent)":
        del copy[key]
    else:
        copy[key] = damaged(value[key], path[1:], replacement)
    return copy


@pytest.mark.law
@settings(max_examples=examples(300), deadline=None)
@given(
    st.sampled_from(
        [
            s3_event("b", "in/x", 1),
            eventbridge_event("b", "in/x", 1),
            logged_call("PutObject"),
            {"Type": "Notification", "Message": json.dumps(s3_event("b", "in/x", 1))},
            azure_event("c", "in/x", 1),
            [azure_event("c", "in/x", 1, cloud_event=True)],
            {"size": "1", "generation": "2", "updated": "2026-01-01T00:00:00Z"},
        ]
    ),
    st.lists(st.integers(0, 9), min_size=1, max_size=5),
    json_values | st.just("(absent)"),
)
def test_real_events_with_any_part_replaced_are_read_without_an_exception(event, path, part):
    body = json.dumps(damaged(event, path, part)).encode()
    for parse in PARSERS:
        check(parse(Message("id", "receipt", body, FINALIZE)))


@settings(max_examples=examples(100), deadline=None)
@given(st.dictionaries(st.sampled_from([*FINALIZE, "objectGeneration", "eventTime"]), st.text()))
def test_any_attributes_are_read_without_an_exception(attributes):
    check(events_gcp.parse(Message("id", "receipt", b"", {**FINALIZE, **attributes})))


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize(
    "body",
    [
        b'{"Records":' + b"[" * 200_000,
        b'{"a":' * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b" " * (MAX_BODY_BYTES + 1),
        b"\xff\xfe",
        json.dumps(s3_event("b", "in/\ud800", 1)).encode(),
    ],
    ids=["open", "objects", "nested", "big", "not UTF-8", "half a surrogate pair"],
)
def test_what_cannot_be_json_of_a_notification_is_poison(parse, body):
    assert isinstance(parse(Message("id", "receipt", body, FINALIZE)), Poison)


def test_a_sample_of_a_body_cannot_control_a_terminal():
    assert sample(b"\x1b[2J\x07caf\xc3\xa9\n\xff ok") == ".[2J.caf... ok"
    assert sample(b"x" * 500) == "x" * 200 + "..."


# ── AWS ─────────────────────────────────────────────────────────────────────────────────────────

KEYS = [
    ("in/plain.json", "in/plain.json"),
    ("in/a+b.json", "in/a b.json"),
    ("in/a%2Bb.json", "in/a+b.json"),
    ("in/a%20b", "in/a b"),
    ("in%2Fslash", "in/slash"),
    ("in/date%3D2026-01-01/x", "in/date=2026-01-01/x"),
    ("in/date=2026-01-01/x", "in/date=2026-01-01/x"),
    ("in/100%25.json", "in/100%.json"),
    ("in/%252B", "in/%2B"),
    ("in/caf%C3%A9/%E6%97%A5%E6%9C%AC/%F0%9F%92%8E", "in/caf\u00e9/\u65e5\u672c/\U0001f48e"),
    ("in//double/../.", "in//double/../."),
    ("/lead", "/lead"),
    ("in/%0A%09", "in/\n\t"),
]


@pytest.mark.parametrize(("written", "key"), KEYS)
def test_keys_of_s3_events_are_decoded(written, key):  # B94
    for body in (
        s3_event("b", written, 7),
        {"Type": "Notification", "Message": json.dumps(s3_event("b", written, 7))},
    ):
        [event] = events_aws.parse(message(body))
        assert (event.location, event.size) == (f"s3://b/{key}", 7)


@pytest.mark.parametrize("key", [key for _, key in KEYS] + ["in/a%2Bb", "in/a+b", "in/%zz"])
def test_keys_of_eventbridge_events_are_not_encoded(key):
    for body in (
        eventbridge_event("b", key, 7),
        {"Type": "Notification", "Message": json.dumps(eventbridge_event("b", key, 7))},
    ):
        [event] = events_aws.parse(message(body))
        assert (event.location, event.size) == (f"s3://b/{key}", 7)


def test_an_s3_event_tells_version_and_time():
    [event] = events_aws.parse(message(s3_event("b", "x", 5, eTag='"abc-2"')))
    assert event.etag == "abc-2"
    assert event.time_us == 1_763_705_489_123_000
    [event] = events_aws.parse(message(eventbridge_event("b", "x", 5)))
    assert event.etag == "b1946ac92492d2347c6235b4d2611184"


@pytest.mark.parametrize("call", ["PutObject", "CompleteMultipartUpload", "CopyObject"])
@pytest.mark.parametrize("through_sns", [False, True])
def test_a_call_that_cloudtrail_has_logged_announces_a_file(call, through_sns):
    body = logged_call(call, "in/a b+%2B.json")
    if through_sns:
        body = {"Type": "Notification", "Message": json.dumps(body)}
    [event] = events_aws.parse(message(body))
    assert (event.location, event.size, event.etag) == ("s3://b/in/a b+%2B.json", None, "")
    logged = {"Records": [logged_call(call, "in/a b+%2B.json")["detail"]]}  # as in its files
    assert events_aws.parse(message(logged)) == [event]
    assert event.doubtful  # the object may be gone, or another one since


def test_an_object_that_ceph_has_synced_is_a_new_file():
    [event] = events_aws.parse(message(s3_event("b", "x", 1, name="s3:ObjectSynced:Create")))
    assert event.location == "s3://b/x"


def in_records(*events):
    return {"Records": [record for event in events for record in event["Records"]]}


@pytest.mark.parametrize(
    ("parse", "body", "attributes", "named", "announced"),
    [
        (events_aws.parse, s3_event("b", "x", 1, name="ObjectMade:Put"), {}, "ObjectMade:Put", 0),
        (
            events_aws.parse,
            in_records(s3_event("b", "x", 1, name="New:ValueKind"), s3_event("b", "y", 1)),
            {},
            "New:ValueKind",
            1,
        ),
        (events_aws.parse, in_records(s3_event("b", "x", -1), s3_event("b", "y", 1)), {}, "-1", 1),
        (
            events_aws.parse,
            {**eventbridge_event("b", "x", 1), "detail-type": "Object Restored From Trash"},
            {},
            "Object Restored From Trash",
            0,
        ),
        (events_aws.parse, logged_call("PutObjectFromElsewhere"), {}, "PutObjectFromElsewhere", 0),
        (events_aws.parse, logged_call("PutObject", eventSource="x.amazonaws.com"), {}, "x.ama", 0),
        (events_aws.parse, {**logged_call("PutObject"), "detail": {}}, {}, "eventSource", 0),
        (events_azure.parse, azure_event("c", "x", 1, kind="BlobUndeleted"), {}, "BlobUndel", 0),
        (
            events_azure.parse,
            [azure_event("c", "x", 1, kind="Later"), azure_event("c", "y", 1)],
            {},
            "Later",
            1,
        ),
        (events_azure.parse, {"eventType": "Microsoft.EventGrid.Other"}, {}, "not an event", 0),
        (events_gcp.parse, b"", {**FINALIZE, "eventType": "OBJECT_RESTORE"}, "OBJECT_RESTORE", 0),
    ],
)
def test_what_may_announce_a_file_is_kept_and_named_and_hides_no_other(
    parse, body, attributes, named, announced
):
    found = parse(message(body, **attributes))
    assert isinstance(found, Poison)
    assert named in found.reason
    assert len(found.events) == announced


def test_a_message_may_hold_several_records():
    body = s3_event("b", "x", 1)
    removed = s3_event("b", "y", 2, name="ObjectRemoved:Delete")
    body["Records"] += removed["Records"] + s3_event("b", "z", 3)["Records"]
    assert [(e.location, e.kind) for e in events_aws.parse(message(body))] == [
        ("s3://b/x", "created"),
        ("s3://b/z", "created"),
        ("s3://b/y", "deleted"),
    ]


@pytest.mark.parametrize(
    ("parse", "body", "attributes", "location"),
    [
        (events_aws.parse, s3_event("b", "x y", 1, name="ObjectRemoved:Delete"), {}, "s3://b/x y"),
        (
            events_aws.parse,
            s3_event("b", "x", 1, name="LifecycleExpiration:Delete"),
            {},
            "s3://b/x",
        ),
        (
            events_aws.parse,
            {**eventbridge_event("b", "x", 1), "detail-type": "Object Deleted"},
            {},
            "s3://b/x",
        ),
        (
            events_gcp.parse,
            b"",
            {**FINALIZE, "eventType": "OBJECT_DELETE", "eventTime": "2026-01-01T00:00:00Z"},
            "gs://b/in/x",
        ),
        (
            events_azure.parse,
            azure_event("c", "x", 1, kind="BlobDeleted", api="DeleteBlob"),
            {},
            "abfss://c@acct.dfs.core.windows.net/x",
        ),
    ],
)
def test_an_event_of_a_deletion_names_the_file(parse, body, attributes, location):
    found = parse(message(body, **attributes))
    assert isinstance(found, IgnoredMessage)
    (gone,) = found.gone
    assert (gone.kind, gone.location) == ("deleted", location)


def test_a_deletion_without_a_name_is_ignored_as_before():
    body = s3_event("b", "x", 1, name="ObjectRemoved:Delete")
    body["Records"][0]["s3"] = {}
    found = events_aws.parse(message(body))
    assert (found, found.gone) == (IgnoredMessage("ObjectRemoved"), ())


def test_a_rename_names_what_is_gone():
    (found,) = events_azure.parse(
        message(azure_event("c", "a/x", None, kind="BlobRenamed", api="RenameFile"))
    )
    assert found.former == "abfss://c@acct.dfs.core.windows.net/a/x.old"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (  # B94
            {
                "Service": "Amazon S3",
                "Event": "s3:TestEvent",
                "Time": "2026-01-01T00:00:00.000Z",
                "Bucket": "b",
                "RequestId": "r",
                "HostId": "h",
            },
            "test event",
        ),
        (
            {"Type": "Notification", "Message": '{"Service":"Amazon S3","Event":"s3:TestEvent"}'},
            "test event",
        ),
        ({"Type": "SubscriptionConfirmation", "Token": "t"}, "subscription of a topic"),
        (s3_event("b", "x", 1, name="ObjectRemoved:Delete"), "ObjectRemoved"),
        (s3_event("b", "x", 1, name="s3:ObjectTagging:Put"), "ObjectTagging"),
        (s3_event("b", "x", 1, name="s3:ObjectAccessed:Get"), "ObjectAccessed"),
        (s3_event("b", "x", 1, name="ObjectSynced:Delete"), "ObjectSynced"),
        (s3_event("b", "x", 1, name="s3:BucketCreated"), "BucketCreated"),
        (logged_call("GetObject"), "call that makes no object"),
        (logged_call("UploadPart"), "call that makes no object"),
        (logged_call("PutBucketPolicy"), "call that makes no object"),
        (logged_call("PutObject", errorCode="AccessDenied"), "call that failed"),
        (
            {**eventbridge_event("b", "x", 1), "detail-type": "Object Deleted"},
            "Object Deleted",
        ),
        ({"Records": []}, "no event in it"),
    ],
)
def test_events_of_s3_that_are_no_new_file_are_ignored(body, reason):
    assert events_aws.parse(message(body)) == IgnoredMessage(reason)


@pytest.mark.parametrize(
    "body",
    [
        {},
        [],
        {"Records": [{}]},
        {"hello": "world"},
        s3_event("b", "", 1),
        s3_event("b", "a%00b", 1),
        s3_event("b", "%FF", 1),
        s3_event("b", "k" * 1025, 1),  # a store refuses to look for it, whenever it is asked
        eventbridge_event("b", "é" * 513, 1),
        s3_event("b", "x", -1),
        s3_event("b", "x", 1 << 60),
        s3_event("b", "x", "1"),
        s3_event("b/../c", "x", 1),
        s3_event("", "x", 1),
        s3_event("b", "x", 1, when="yesterday"),
        {**eventbridge_event("b", "x", 1), "source": "aws.ec2"},
        {**eventbridge_event("b", "x", 1), "detail": None},
        {"Type": "Notification", "Message": "hello"},
        {"Type": "Notification"},
    ],
    ids=str,
)
def test_what_is_no_event_of_s3_is_poison(body):
    assert isinstance(events_aws.parse(message(body)), Poison)


def test_the_longest_keys_are_taken():
    assert (
        events_aws.parse(message(s3_event("b", "k" * 1024, 1)))[0].location
        == f"s3://b/{'k' * 1024}"
    )
    for letter in ("k", "é", "🦊"):
        found = events_azure.parse(message(azure_event("c", letter * 1024, 1)))
        assert found[0].location.endswith("/" + letter * 1024)


def test_coats_within_coats_end():
    body = s3_event("b", "x", 1)
    for _ in range(3):
        body = {"Type": "Notification", "Message": json.dumps(body)}
    assert isinstance(events_aws.parse(message(body)), list)
    body = {"Type": "Notification", "Message": json.dumps(body)}
    assert isinstance(events_aws.parse(message(body)), Poison)


# ── Azure ───────────────────────────────────────────────────────────────────────────────────────

NAMES = ["in/a b+c%2B&\u00e9=.json", "in/\u65e5/blobs/x", "blobs", "in//../x", "/lead"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("cloud_event", [False, True])
@pytest.mark.parametrize("array", [False, True])
@pytest.mark.parametrize("encode", [bytes, base64.b64encode], ids=["raw", "base64"])
def test_names_of_azure_events_are_taken_as_they_are(name, cloud_event, array, encode):
    event = azure_event("c", name, 7, cloud_event=cloud_event)
    body = json.dumps([event] if array else event).encode()
    [found] = events_azure.parse(message(encode(body)))
    assert found.location == f"abfss://c@acct.dfs.core.windows.net/{name}"
    assert (found.size, found.etag, found.is_folder) == (7, "0x8D4BCC2E4835CD0", False)
    assert found.time_us == 1_763_705_489_958_410
    assert f"c@acct/{name}" in found.spellings


@pytest.mark.parametrize("api", ["PutBlob", "PutBlockList", "FlushWithClose", "CopyBlob", "New"])
def test_a_complete_file_is_announced_by_any_of_these(api):  # B99
    [found] = events_azure.parse(message(azure_event("c", "x", 7, api=api)))
    assert found.size == 7
    assert found.incomplete == (api == "CopyBlob")


@pytest.mark.parametrize("api", ["CreateFile", "SftpCreate"])
def test_a_file_that_is_begun_is_not_there_yet(api):  # B99
    assert events_azure.parse(message(azure_event("c", "x", 0, api=api))) == IgnoredMessage(
        "a file that is begun"
    )


def test_a_rename_names_the_new_file_and_no_size():  # B99
    event = azure_event("c", "new", None, kind="BlobRenamed", api="RenameFile")
    [found] = events_azure.parse(message(event))
    assert (found.size, found.etag, found.is_folder) == (None, "", False)
    event = azure_event("c", "new", None, kind="DirectoryRenamed", api="RenameDirectory")
    [found] = events_azure.parse(message(event))
    assert (found.size, found.is_folder) == (None, True)


def test_a_name_that_may_be_damaged_is_doubted():
    [found] = events_azure.parse(message(azure_event("c", "log_14\ufffd\ufffd.json", 7)))
    assert found.doubtful


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://acct.blob.core.windows.net/c/x", "acct.dfs.core.windows.net"),
        ("https://acct.dfs.core.chinacloudapi.cn/c/x", "acct.dfs.core.chinacloudapi.cn"),
        ("https://acct.blob.core.usgovcloudapi.net/c/x", "acct.dfs.core.usgovcloudapi.net"),
        ("http://127.0.0.1:10000/acct/c/x", "acct.dfs.core.windows.net"),
        ("https://[", "acct.dfs.core.windows.net"),
        ("https://evil.example/c/x", "acct.dfs.core.windows.net"),
    ],
)
def test_the_host_is_that_of_the_account(url, host):
    event = azure_event("c", "x", 7)
    event["data"]["url"] = url
    [found] = events_azure.parse(message(event))
    assert found.location == f"abfss://c@{host}/x"


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (azure_event("c", "x", 1, kind="BlobDeleted", api="DeleteBlob"), "BlobDeleted"),
        (azure_event("c", "x", None, kind="DirectoryCreated"), "DirectoryCreated"),
        (azure_event("c", "x", None, kind="AsyncOperationInitiated"), "AsyncOperationInitiated"),
        (
            {"eventType": "Microsoft.EventGrid.SubscriptionValidationEvent", "subject": ""},
            "validation of a subscription",
        ),
        ([], "no event in it"),
    ],
)
def test_events_of_azure_that_are_no_new_file_are_ignored(event, reason):
    assert events_azure.parse(message(event)) == IgnoredMessage(reason)


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"eventType": "Contoso.Items.ItemReceived", "subject": "x"},
        {**azure_event("c", "x", 1), "subject": "/blobServices/default/containers/c"},
        {**azure_event("c", "x", 1), "subject": "/blobServices/default/containers/c/blobs/"},
        {**azure_event("c", "x", 1), "topic": "nonsense"},
        {**azure_event("c", "x", 1), "eventTime": None},
        azure_event("c", "x", -1),
        azure_event("c", "a\0b", 1),
        azure_event("c", "é" * 1025, 1),
        azure_event("c@evil", "x", 1),
    ],
    ids=str,
)
def test_what_is_no_event_of_azure_is_poison(event):
    assert isinstance(events_azure.parse(message(event)), Poison)


def test_text_that_is_neither_json_nor_base64_is_poison():
    for body in (b"hello", b"", base64.b64encode(b"hello"), b"aGVsbG8"):
        assert isinstance(events_azure.parse(message(body)), Poison)


# ── GCP ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("key", ["in/a b+%2B&\u00e9=.json", "in/\U0001f48e", "/lead//.."])
def test_names_of_gcs_events_are_taken_as_they_are(key):  # B99
    resource = {"size": "7", "generation": "1700000000000001", "updated": "2025-11-21T06:11:29Z"}
    [event] = events_gcp.parse(message(resource, **{**FINALIZE, "objectId": key}))
    assert (event.location, event.size) == (f"gs://b/{key}", 7)
    assert (event.etag, event.time_us) == ("1700000000000001", 1_763_705_489_000_000)


def test_a_gcs_event_without_payload_needs_a_look():
    attributes = {**FINALIZE, "eventTime": "2025-11-21T06:11:29Z", "objectGeneration": "5"}
    [event] = events_gcp.parse(message(b"", **attributes))
    assert (event.size, event.etag) == (None, "5")


@pytest.mark.parametrize("kind", ["OBJECT_DELETE", "OBJECT_ARCHIVE", "OBJECT_METADATA_UPDATE"])
def test_other_events_of_gcs_are_ignored(kind):
    assert events_gcp.parse(message(b"", **{**FINALIZE, "eventType": kind})) == IgnoredMessage(kind)


@pytest.mark.parametrize(
    ("body", "attributes"),
    [
        (b"", {}),
        (b"", FINALIZE),  # no time
        (b"{", FINALIZE),
        ({"size": "-1", "updated": "2026-01-01T00:00:00Z"}, FINALIZE),
        ({"size": "9" * 30, "updated": "2026-01-01T00:00:00Z"}, FINALIZE),
        ({"size": 1.5, "updated": "2026-01-01T00:00:00Z"}, FINALIZE),
        ({"size": "1", "updated": "2026-01-01T00:00:00Z"}, {**FINALIZE, "objectId": ""}),
        ({"size": "1", "updated": "2026-01-01T00:00:00Z"}, {**FINALIZE, "objectId": "k" * 1025}),
        ({"size": "1", "updated": "2026-01-01T00:00:00Z"}, {**FINALIZE, "bucketId": "b/c"}),
    ],
    ids=str,
)
def test_what_is_no_event_of_gcs_is_poison(body, attributes):
    assert isinstance(events_gcp.parse(message(body, **attributes)), Poison)
