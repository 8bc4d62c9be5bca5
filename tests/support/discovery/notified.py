"""Notifications as the clouds send them."""

from __future__ import annotations

from typing import Any

TIME = "2025-11-21T06:11:29.123Z"


def s3_event(
    bucket: str,
    key: str,
    size: Any,
    *,
    name: str = "ObjectCreated:Put",
    when: str = TIME,
    **fields: Any,
) -> dict[str, Any]:
    """An event of S3; the key as S3 writes it."""
    record = {
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "awsRegion": "us-west-2",
        "eventTime": when,
        "eventName": name,
        "userIdentity": {"principalId": "AIDAJDPLRKLG7UEXAMPLE"},
        "requestParameters": {"sourceIPAddress": "127.0.0.1"},
        "responseElements": {"x-amz-request-id": "C3D13FE58DE4C810", "x-amz-id-2": "FMyUVURIY8"},
        "s3": {
            "s3SchemaVersion": "1.0",
            "configurationId": "testConfigRule",
            "bucket": {
                "name": bucket,
                "ownerIdentity": {"principalId": "A3NL1KOZZKExample"},
                "arn": f"arn:aws:s3:::{bucket}",
            },
            "object": {
                "key": key,
                "size": size,
                "eTag": "d41d8cd98f00b204e9800998ecf8427e",
                "versionId": "096fKKXTRTtl3on89fVO.nfljtsv6qko",
                "sequencer": "0055AED6DCD90281E5",
                **fields,
            },
        },
    }
    return {"Records": [record]}


def eventbridge_event(bucket: str, key: str, size: Any) -> dict[str, Any]:
    """An event of S3 as EventBridge sends it; the key as it is."""
    return {
        "version": "0",
        "id": "17793124-05d4-b198-2fde-7ededc63b103",
        "detail-type": "Object Created",
        "source": "aws.s3",
        "account": "111122223333",
        "time": "2025-11-21T06:11:29Z",
        "region": "ca-central-1",
        "resources": [f"arn:aws:s3:::{bucket}"],
        "detail": {
            "version": "0",
            "bucket": {"name": bucket},
            "object": {
                "key": key,
                "size": size,
                "etag": "b1946ac92492d2347c6235b4d2611184",
                "version-id": "IYV3p45BT0ac8hjHg1houSdS1a.Mro8e",
                "sequencer": "617f08299329d189",
            },
            "request-id": "N4N7GDK58NMKJ12R",
            "requester": "123456789012",
            "source-ip-address": "1.2.3.4",
            "reason": "PutObject",
        },
    }


def logged_call(call: str, key: str = "in/x", **fields: Any) -> dict[str, Any]:
    """A call to S3 that CloudTrail has logged, as EventBridge sends it."""
    detail = {
        "eventVersion": "1.10",
        "userIdentity": {"type": "AWSService", "invokedBy": "firehose.amazonaws.com"},
        "eventTime": "2025-11-21T06:11:29Z",
        "eventSource": "s3.amazonaws.com",
        "eventName": call,
        "requestParameters": {"bucketName": "b", "Host": "b.s3.amazonaws.com", "key": key},
        "responseElements": {"x-amz-version-id": "096fKKXTRTtl3on89fVO.nfljtsv6qko"},
        "additionalEventData": {"bytesTransferredIn": 7, "SignatureVersion": "SigV4"},
        "readOnly": False,
        "managementEvent": False,
        **fields,
    }
    event = eventbridge_event("b", key, 7)
    return {**event, "detail-type": "AWS API Call via CloudTrail", "detail": detail}


def azure_event(
    container: str,
    name: str,
    size: int | None,
    *,
    kind: str = "BlobCreated",
    api: str = "PutBlob",
    account: str = "acct",
    cloud_event: bool = False,
) -> dict[str, Any]:
    """An event of Event Grid, in its own schema or as a CloudEvent."""
    topic = (
        "/subscriptions/0000/resourceGroups/Storage/providers/Microsoft.Storage/storageAccounts/"
        + account
    )
    url = f"https://{account}.dfs.core.windows.net/{container}/{name}"
    data: dict[str, Any] = {
        "api": api,
        "clientRequestId": "6d79dbfb-0e37-4fc4-981f-442c9ca65760",
        "requestId": "831e1650-001e-001b-66ab-eeb76e000000",
        "sequencer": "00000000000004420000000000028963",
        "storageDiagnostics": {"batchId": "b68529f3-68cd-4744-baa4-3c0498ec19f0"},
    }
    if size is None:
        data |= {"destinationUrl": url, "sourceUrl": url + ".old"}
    else:
        data |= {"eTag": '"0x8D4BCC2E4835CD0"', "contentType": "text/plain", "url": url}
        data |= {"contentLength": size, "blobType": "BlockBlob"}
    event = {
        "subject": f"/blobServices/default/containers/{container}/blobs/{name}",
        "id": "831e1650-001e-001b-66ab-eeb76e069631",
        "data": data,
    }
    when = "2025-11-21T06:11:29.9584103Z"
    kind = f"Microsoft.Storage.{kind}"
    if cloud_event:
        return event | {"source": topic, "type": kind, "time": when, "specversion": "1.0"}
    return event | {
        "topic": topic,
        "eventType": kind,
        "eventTime": when,
        "dataVersion": "",
        "metadataVersion": "1",
    }
