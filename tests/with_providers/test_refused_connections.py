"""What neither a hook nor this package obeys is refused by name, and without a secret."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_cloudfiles.engine.clouds.aws.access import AwsAccess
from airflow_cloudfiles.engine.clouds.aws.session import aws_client
from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.hooks.access import access_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow.providers.common.compat.sdk import Connection


@pytest.mark.parametrize(
    ("conn_type", "fields", "named"),
    [
        ("aws", {"extra": {"role_arm": "hush1"}}, "'role_arm'"),
        ("aws", {"extra": {"session_kwargs": {"profile_name": "p"}}}, "beside session_kwargs"),
        ("aws", {"login": "AKIA"}, "one half"),
        ("aws", {"extra": {"config_kwargs": {"client_cert": "hush1"}}}, "client_cert"),
        ("wasb", {"login": "a", "extra": {"sas_tokn": "hush1"}}, "sas_tokn"),
        ("wasb", {"login": "a", "password": "hush1", "extra": {"tenant_id": "_"}}, "tenant ID"),
        ("google_cloud_platform", {"extra": {"impersonation_chian": "hush1"}}, "chian"),
    ],
)
def test_what_nobody_obeys_is_refused_by_name(
    conn_type: str, fields: dict[str, Any], named: str, connection: Callable[..., Connection]
) -> None:
    with pytest.raises(OptionError, match=named) as refused:
        access_of(connection(conn_type, **fields))
    assert "hush1" not in str(refused.value)


def test_what_a_hook_refuses_later_is_explained(connection: Callable[..., Connection]) -> None:
    extra = {
        "role_arn": "arn:aws:iam::000000000000:role/reader",
        "assume_role_method": "assume_role_with_magic",
    }
    access = access_of(connection("aws", extra=extra))
    assert isinstance(access, AwsAccess)
    with pytest.raises(OptionError, match="hook of its provider: NotImplementedError"):
        aws_client("s3", access)
