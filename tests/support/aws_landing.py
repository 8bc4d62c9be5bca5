"""A bucket whose arrivals are told to a queue, and the Airflow connection that reaches them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from demo.airflow_home import AirflowHome
    from tests.support.emulators.aws import Aws


def bucket_with_queue(aws: Aws) -> tuple[str, str]:
    """Make a bucket that sends its events to a queue; gives its URI and the queue's URL."""
    source, queue = aws.bucket(), aws.queue()
    sqs = aws.client("sqs")
    told = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])
    aws.client("s3").put_bucket_notification_configuration(
        Bucket=source.removeprefix("s3://"),
        NotificationConfiguration={
            "QueueConfigurations": [
                {"QueueArn": told["Attributes"]["QueueArn"], "Events": ["s3:ObjectCreated:*"]}
            ]
        },
    )
    return source, queue


def put(aws: Aws, source: str, key: str, record: str = '{"a": 1}') -> None:
    """Land a file."""
    bucket = source.removeprefix("s3://")
    aws.client("s3").put_object(Bucket=bucket, Key=key, Body=f"{record}\n".encode())


def queue_size(aws: Aws, queue: str) -> int:
    """How many messages a queue has, those that somebody holds included."""
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    told = aws.client("sqs").get_queue_attributes(QueueUrl=queue, AttributeNames=names)
    return sum(int(told["Attributes"][name]) for name in names)


def connection(aws: Aws, secret: str, *, token: str = "") -> dict[str, Any]:
    """What an author writes down to reach the emulator."""
    return {
        "conn_type": "aws",
        "login": "test",
        "password": secret,
        "extra": json.dumps(
            {
                "region_name": aws.access.region,
                **({"aws_session_token": token} if token else {}),
                "service_config": {name: {"endpoint_url": aws.endpoint} for name in ("s3", "sqs")},
                "config_kwargs": {"s3": {"addressing_style": "path"}},
            }
        ),
    }


def with_landing(airflow: AirflowHome, aws: Aws, secret: str, *, token: str) -> None:
    """Let an Airflow have the connection `landing`, which may be there already."""
    given = {"connection_id": "landing", **connection(aws, secret, token=token)}
    there = airflow.api.call("GET", "/api/v2/connections?limit=100")["connections"]
    if "landing" not in {each["connection_id"] for each in there}:
        airflow.api.call("POST", "/api/v2/connections", given)


def objects(aws: Aws, bucket: str) -> dict[str, bytes]:
    """Every object of a bucket."""
    s3, name = aws.client("s3"), bucket.removeprefix("s3://")
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=name)
    keys = [each["Key"] for page in pages for each in page.get("Contents", ())]
    return {key: s3.get_object(Bucket=name, Key=key)["Body"].read() for key in keys}
