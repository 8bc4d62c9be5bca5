"""What both readings of a connection know, they say alike: the hook's, and this package's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_cloudfiles.engine.clouds.aws.access import AwsAccess
from airflow_cloudfiles.engine.clouds.aws.session import (
    aws_client,
    aws_credentials,
    request_arguments,
)
from airflow_cloudfiles.engine.clouds.azure.access import AzureAccess
from airflow_cloudfiles.engine.clouds.azure.client import open_account
from airflow_cloudfiles.engine.clouds.gcp.access import GcpAccess
from airflow_cloudfiles.engine.clouds.gcp.client import google_credentials
from airflow_cloudfiles.hooks.access import access_of
from airflow_cloudfiles.hooks.access_aws import aws_access
from airflow_cloudfiles.hooks.access_azure import azure_access
from airflow_cloudfiles.hooks.access_gcp import gcp_access

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow.providers.common.compat.sdk import Connection

    from tests.support.token_services import TokenServices

KEYS = {"login": "AKIA", "password": "secret"}
ADDRESS = "http://127.0.0.1:9"


def _aws(access: AwsAccess) -> dict[str, Any]:
    """With whose keys, where and how AWS is reached."""
    found: dict[str, Any] = {"keys": aws_credentials(access), "says": request_arguments(access)}
    for service in ("s3", "sqs", "sns", "sts", "events"):
        client = aws_client(service, access)
        config = client.meta.config
        found[service] = (
            client.meta.endpoint_url,
            client.meta.region_name,
            config.s3,
            config.request_checksum_calculation,
            config.response_checksum_validation,
            client._endpoint.http_session._verify,
        )
    return found


@pytest.mark.parametrize(
    "fields",
    [
        {},
        KEYS,
        {"extra": {"aws_access_key_id": "AKIA", "aws_secret_access_key": "secret"}},
        {**KEYS, "extra": {"aws_session_token": "token", "region_name": "eu-west-1"}},
        {"extra": {"profile_name": "landing"}},
        {"extra": {"profile_name": "landing", "region_name": "eu-central-1"}},
        {**KEYS, "host": "minio", "port": 9000, "schema": "http"},
        {**KEYS, "extra": {"endpoint_url": ADDRESS, "config_kwargs": {"s3": {}}}},
        {**KEYS, "extra": {"config_kwargs": {"s3": {"addressing_style": "path"}}}},
        {**KEYS, "extra": {"config_kwargs": {"signature_version": "s3v4"}}},
        {**KEYS, "extra": {"config_kwargs": {"request_checksum_calculation": "when_required"}}},
        {
            **KEYS,
            "extra": {
                "endpoint_url": ADDRESS,
                "service_config": {"sqs": {"endpoint_url": f"{ADDRESS}1"}, "s3": {}},
            },
        },
        {**KEYS, "extra": {"verify": False}},
        {**KEYS, "extra": {"extra_args": {"RequestPayer": "requester"}}},
    ],
)
def test_an_aws_connection(
    fields: dict[str, Any],
    connection: Callable[..., Connection],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "OF-THE-ENVIRONMENT")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-west-2")
    (tmp_path / "credentials").write_text(
        "[landing]\naws_access_key_id = OF-THE-PROFILE\naws_secret_access_key = secret\n"
    )
    given = connection("aws", **fields)
    by_hook = access_of(given)
    assert isinstance(by_hook, AwsAccess)
    assert by_hook.identity is not None
    assert (by_hook.access_key_id, by_hook.profile) == (None, None)
    assert _aws(by_hook) == _aws(aws_access(given))


def _azure(access: AzureAccess) -> Any:
    """With what, and where Azure is reached; a token without its number."""
    account = open_account("account", access, "blob")
    credential = account.credential
    if hasattr(credential, "signature"):
        return account.endpoint, credential.signature
    if hasattr(credential, "get_token"):
        token = credential.get_token("https://storage.azure.com/.default").token
        return account.endpoint, token.rpartition("-")[0]
    return account.endpoint, credential


PRINCIPAL = {"login": "id", "password": "hush"}
STRING = "AccountName=account;AccountKey=hush1;EndpointSuffix=core.windows.net"


@pytest.mark.parametrize(
    ("conn_type", "fields"),
    [
        ("wasb", {"extra": {"connection_string": STRING}}),
        ("wasb", {"login": "account", "extra": {"shared_access_key": "key1"}}),
        ("wasb", {"login": "account", "extra": {"account_key": "key1"}}),
        ("wasb", {"login": "account", "password": "key1", "extra": {"account_key": "key2"}}),
        ("wasb", {"login": "account", "extra": {"shared_access_key": "key1", "sas_token": "s=1"}}),
        ("wasb", {"login": "account", "password": "key1"}),
        ("wasb", {"login": "account", "extra": {"sas_token": "sv=1&sig=hush"}}),
        ("wasb", {"extra": {"sas_token": "https://account.blob.core.windows.net/?sig=hush"}}),
        ("wasb", {**PRINCIPAL, "extra": {"tenant_id": "acme.com"}}),
        ("wasb", {**PRINCIPAL, "extra": {"tenant_id": "acme.com", "shared_access_key": "key1"}}),
        ("wasb", {**PRINCIPAL, "host": "account", "extra": {"tenant_id": "acme.com"}}),
        ("wasb", {"login": "account"}),
        ("wasb", {"login": "account", "extra": {"queue_endpoint": "https://queues.acme.com"}}),
        ("wasb", {"login": "account", "host": "https://account.blob.core.windows.net/"}),
        ("adls", {"extra": {"connection_string": STRING}}),
        ("adls", {"host": "account", "password": "a2V5MQ=="}),
        ("adls", {**PRINCIPAL, "host": "account", "extra": {"tenant_id": "acme.com"}}),
        ("adls", {"host": "account"}),
    ],
)
def test_an_azure_connection(
    conn_type: str,
    fields: dict[str, Any],
    connection: Callable[..., Connection],
    services: TokenServices,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("TENANT_ID", "CLIENT_ID", "CLIENT_SECRET"):
        monkeypatch.setenv(f"AZURE_{name}", f"ambient.{name.replace('_', '.').lower()}")
    given = connection(conn_type, **fields)
    by_hook, ours = access_of(given), azure_access(given)
    assert isinstance(by_hook, AzureAccess)
    assert _azure(by_hook) == _azure(ours)
    assert by_hook.queue_endpoint == ours.queue_endpoint
    tokens = bool(services.sent_to("login.microsoftonline.com"))
    assert tokens == (by_hook.identity is not None)


@pytest.mark.parametrize("extra", [{}, {"project": "acme"}, {"is_anonymous": True}, {"key": True}])
def test_a_google_connection(
    extra: dict[str, Any], connection: Callable[..., Connection], google_key: dict[str, str]
) -> None:
    fields = {"keyfile_dict": json.dumps(google_key)} if extra == {"key": True} else extra
    given = connection("google_cloud_platform", extra=fields)
    by_hook = access_of(given)
    assert isinstance(by_hook, GcpAccess)
    assert by_hook == gcp_access(given)
    from airflow.providers.google.common.hooks.base_google import GoogleBaseHook

    if extra:  # without, there are none on this machine
        hook = type("Hook", (GoogleBaseHook,), {"get_connection": classmethod(lambda *_: given)})
        credentials = google_credentials(by_hook)
        expected = hook(given.conn_id).get_credentials() if fields != {"project": "acme"} else None
        assert type(credentials) is type(expected)
        assert getattr(credentials, "signer_email", 0) == getattr(expected, "signer_email", 0)
