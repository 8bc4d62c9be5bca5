"""One client for each access and environment, however often it is asked for."""

from __future__ import annotations

import pytest

from airflow_cloudfiles.engine.storage.access import AwsAccess
from airflow_cloudfiles.engine.storage.aws import session


def _access(key: str = "key") -> AwsAccess:
    return AwsAccess(access_key_id=key, secret_access_key="secret", region="us-east-1")


def test_equal_accesses_share_a_client_and_others_do_not() -> None:
    access = _access()
    client = session.aws_client("s3", access)
    assert session.aws_client("s3", access) is client
    assert session.aws_client("s3", _access()) is client
    assert session.aws_client("s3", _access("other")) is not client


def test_an_environment_of_other_credentials_gives_another_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    access = _access()
    client = session.aws_client("s3", access)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "2")
    other = session.aws_client("s3", access)
    assert other is not client
    monkeypatch.delenv("AWS_MAX_ATTEMPTS")
    assert session.aws_client("s3", access) is not other


def test_an_access_is_never_taken_for_one_that_is_gone() -> None:
    """Objects made one after another get the same identity in memory."""
    for number in range(30):
        credentials = session.aws_credentials(_access(f"key{number}"))
        assert credentials is not None
        assert credentials.access_key == f"key{number}"
