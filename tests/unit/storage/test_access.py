"""An access: plain values, handed to a child process, never shown."""

from __future__ import annotations

import pytest
from botocore.exceptions import HTTPClientError

from airflow_cloudfiles.engine.clouds.aws.access import AwsAccess
from airflow_cloudfiles.engine.clouds.aws.errors import readable
from airflow_cloudfiles.engine.clouds.aws.session import aws_client, aws_credentials
from airflow_cloudfiles.engine.clouds.azure.access import AzureAccess
from airflow_cloudfiles.engine.clouds.azure.client import open_account
from airflow_cloudfiles.engine.clouds.gcp.access import GcpAccess
from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.job.spark_command import (
    SparkConnect,
    remote_of,
    server_of_driver,
)
from airflow_cloudfiles.engine.storage.access import (
    ENVIRONMENT,
    from_environment,
    of_kind,
    to_environment,
)
from airflow_cloudfiles.engine.storage.vendors import import_with_extra

ACCESSES = [
    AwsAccess(
        access_key_id="id",
        secret_access_key="s3cret",
        session_token="s3cret",
        role_external_id="s3cret",
        endpoint_urls={"s3": "http://one", "": "http://all"},
        verify="/a/bundle.pem",
    ),
    AzureAccess(
        connection_string="AccountKey=s3cret",
        account_key="s3cret",
        sas_token="s3cret",
        client_secret="s3cret",
        tenant_id="tenant",
    ),
    GcpAccess(project="project", keyfile_json='{"private_key": "s3cret"}', anonymous=True),
]


@pytest.mark.parametrize("access", ACCESSES)
def test_an_access_reaches_a_child_process_and_shows_no_secret(access, monkeypatch):
    assert from_environment(to_environment(access)) == access
    assert "s3cret" not in repr(access)
    monkeypatch.setenv(ENVIRONMENT, to_environment(access)[ENVIRONMENT])
    for kind in (AwsAccess, AzureAccess, GcpAccess):
        assert of_kind(kind, None) == (access if isinstance(access, kind) else None)


def test_an_access_of_another_cloud_is_none_for_this_one(monkeypatch):
    monkeypatch.delenv(ENVIRONMENT, raising=False)
    aws, azure, _ = ACCESSES
    assert of_kind(AwsAccess, azure) is None
    assert of_kind(AwsAccess, aws) is aws
    monkeypatch.setenv(ENVIRONMENT, to_environment(aws)[ENVIRONMENT])
    assert of_kind(AwsAccess, azure) == aws


@pytest.mark.parametrize(
    "text", ["s3cret", "[]", '{"kind": "s3cret"}', '{"kind": "aws", "s3cret": 1}']
)
def test_what_is_no_access_is_refused_and_not_shown(text):
    with pytest.raises(OptionError, match=ENVIRONMENT) as refused:
        from_environment({ENVIRONMENT: text})
    assert "s3cret" not in str(refused.value)
    assert refused.value.__cause__ is None


def test_an_endpoint_serves_all_services_without_one_of_their_own():
    access = AwsAccess(endpoint_urls={"s3": "http://one", "": "http://all"})
    assert access.endpoint_url("s3") == "http://one"
    assert access.endpoint_url("sqs") == "http://all"
    assert AwsAccess().endpoint_url("s3") is None


def test_a_missing_extra_is_named_with_the_command_that_installs_it():
    with pytest.raises(OptionError, match=r"s3://b needs .* the extra aws, .*\[aws\]'"):
        import_with_extra("no_such_package", "aws", needed_for="s3://b")
    with pytest.raises(ModuleNotFoundError):
        import_with_extra("airflow_cloudfiles.engine.none", "aws", needed_for="s3://b")


@pytest.mark.parametrize(
    ("variable", "open_it"),
    [
        ("AWS_SECRET_ACCESS_KEY", lambda: aws_client("s3")),
        ("AWS_SESSION_TOKEN", aws_credentials),
        ("AWS_ACCESS_KEY_ID", lambda: aws_client("sqs", AwsAccess(region="eu-west-1"))),
        ("AZURE_CLIENT_SECRET", lambda: open_account("a", None, "blob")),
        ("SPARK_CONNECT_AUTHENTICATE_TOKEN", server_of_driver),
    ],
)
@pytest.mark.parametrize("value", ["hush-5e1f7c\n", "hush\n-5e1f7c"])
def test_a_secret_of_the_environment_with_a_line_end_is_refused_unseen(
    monkeypatch, variable, open_it, value
):
    monkeypatch.delenv("AZURE_STORAGE_CONNECTION_STRING", raising=False)
    monkeypatch.setenv("CLOUDFILES_SPARK_REMOTE", "sc://host")
    monkeypatch.setenv(variable, value)
    with pytest.raises(OptionError, match=variable) as refused:
        open_it()
    assert "5e1f7c" not in f"{refused.value!r} {refused.value.__cause__!r}"


def test_the_token_of_a_spark_connect_server_has_no_line_end():
    remote = remote_of("host", None, user="me\n", token="hush-5e1f7c\n", use_ssl=None)
    assert SparkConnect(f"{remote}\n").remote == "sc://host/;user_id=me;token=hush-5e1f7c"
    for token in ("hush-5e1f7c%0A", "hush%0D5e1f7c"):
        with pytest.raises(OptionError, match="line end or another control") as refused:
            SparkConnect(f"sc://host/;token={token}")
        assert "5e1f7c" not in repr(refused.value)


def test_what_a_client_of_http_quotes_is_not_quoted():
    quoted = HTTPClientError(error=ValueError("Invalid header value b'hush-5e1f7c'"))
    for failure in (quoted, HTTPClientError(error=RuntimeError("hush-5e1f7c"))):
        assert "5e1f7c" not in str(readable(failure, "s3://b/k could not be read", "s3:GetObject"))
    assert isinstance(readable(quoted, "x", "y"), PermissionError)
