"""One client for each access and environment, however often it is asked for."""

from __future__ import annotations

from datetime import UTC

import pytest
from botocore.utils import parse_timestamp
from hypothesis import given
from hypothesis import strategies as st

from airflow_cloudfiles.engine.clouds.aws import session
from airflow_cloudfiles.engine.clouds.aws.access import AwsAccess


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


@given(
    st.datetimes(timezones=st.just(UTC)).map(lambda time: time.isoformat().replace("+00:00", "Z"))
    | st.datetimes(timezones=st.just(UTC)).map(lambda time: f"{time:%a, %d %b %Y %H:%M:%S GMT}")
    | st.sampled_from(
        [
            "2026-01-02T03:04:05Z",
            "2026-01-02T03:04:05.678Z",
            "2026-01-02T03:04:05.123456789Z",
            "2026-01-02T03:04Z",
            "2026-01-02T03:04:05+02:00",
            "20260102T030405Z",
            "1767323045",
            1767323045,
            1767323045.5,
        ]
    )
)
def test_times_are_read_as_botocore_reads_them(value: object) -> None:
    assert session.parse_time(value) == parse_timestamp(value)


@pytest.mark.parametrize("value", ["2026-13-02T03:04:05Z", "2026-01-02T99:04:05Z", "yesterday", ""])
def test_what_is_no_time_fails_as_in_botocore(value: str) -> None:
    with pytest.raises(ValueError, match="timestamp"):
        session.parse_time(value)


def test_clients_read_times_that_way() -> None:
    client = session.aws_client("s3", _access())
    parser = client._endpoint._response_parser_factory.create_parser("rest-xml")
    assert parser._timestamp_parser is session.parse_time
