"""What connections of clouds and SFTP servers say reaches the engine, and nothing says a secret."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.common.compat.sdk import Connection

from airflow_cloudfiles.engine.clouds.aws.access import AwsAccess
from airflow_cloudfiles.engine.clouds.azure.access import AzureAccess
from airflow_cloudfiles.engine.clouds.gcp.access import GcpAccess
from airflow_cloudfiles.engine.clouds.sftp.access import SftpAccess
from airflow_cloudfiles.engine.errors import OptionError, UnsupportedOptionError
from airflow_cloudfiles.engine.storage.access import from_environment, to_environment
from airflow_cloudfiles.hooks.access import access_of

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage.access import Access

pytestmark = pytest.mark.airflow

HUSH = "hush-5e1f7c"
S3 = "https://s3.eu-west-1.amazonaws.com"
STYLE = {"s3": {"addressing_style": "virtual"}}


def _access(conn_type: str, *, extra: object = None, **fields: Any) -> Access | None:
    text = extra if isinstance(extra, str) or extra is None else json.dumps(extra)
    connection = Connection(conn_id="ours", conn_type=conn_type, extra=text, **fields)
    return access_of(connection)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, AwsAccess()),
        (
            {"login": "AKIA", "password": HUSH, "extra": {"region_name": "eu-central-1"}},
            AwsAccess(access_key_id="AKIA", secret_access_key=HUSH, region="eu-central-1"),
        ),
        (
            {
                "extra": {
                    "aws_access_key_id": "AKIA",
                    "aws_secret_access_key": HUSH,
                    "aws_session_token": HUSH,
                    "profile_name": "",
                }
            },
            AwsAccess(access_key_id="AKIA", secret_access_key=HUSH, session_token=HUSH),
        ),
        (
            {"extra": {"session_kwargs": {"profile_name": "landing", "region_name": "eu-west-1"}}},
            AwsAccess(profile="landing", region="eu-west-1"),
        ),
        (
            {
                "extra": {
                    "role_arn": "arn:aws:iam::1:role/r",
                    "assume_role_kwargs": {"ExternalId": HUSH, "RoleSessionName": "airflow"},
                }
            },
            AwsAccess(
                role_arn="arn:aws:iam::1:role/r",
                role_external_id=HUSH,
                role_session_name="airflow",
            ),
        ),
        (
            {"login": "AKIA", "password": HUSH, "host": "http://minio", "port": 9000},
            AwsAccess(
                access_key_id="AKIA",
                secret_access_key=HUSH,
                endpoint_urls=dict.fromkeys(("s3", "sqs", "sns", "events"), "http://minio:9000"),
                path_style=True,
            ),
        ),
        (
            {"host": "minio", "schema": "http", "extra": {"config_kwargs": STYLE}},
            AwsAccess(endpoint_urls=dict.fromkeys(("s3", "sqs", "sns", "events"), "http://minio")),
        ),
        (
            {"host": "https://s3.eu-west-1.amazonaws.com/", "extra": {"endpoint_url": S3}},
            AwsAccess(endpoint_urls=dict.fromkeys(("s3", "sqs", "sns", "events"), S3)),
        ),
        (
            {"extra": {"host": "http://minio:9000"}},  # of before Airflow 2
            AwsAccess(
                endpoint_urls=dict.fromkeys(("s3", "sqs", "sns", "events"), "http://minio:9000"),
                path_style=True,
            ),
        ),
        (
            {
                "extra": {
                    "config_kwargs": {
                        "request_checksum_calculation": "when_required",
                        "response_checksum_validation": "when_required",
                    },
                    "service_config": {
                        "s3": {"config_kwargs": {"response_checksum_validation": "when_supported"}}
                    },
                    "extra_args": {
                        "RequestPayer": "requester",
                        "ServerSideEncryption": "aws:kms",
                        "SSEKMSKeyId": "key",
                        "BucketKeyEnabled": True,
                    },
                }
            },
            AwsAccess(
                checksums={
                    "request_checksum_calculation": "when_required",
                    "response_checksum_validation": "when_supported",
                },
                request_arguments={
                    "RequestPayer": "requester",
                    "ServerSideEncryption": "aws:kms",
                    "SSEKMSKeyId": "key",
                    "BucketKeyEnabled": True,
                },
            ),
        ),
        (
            {  # a common address serves all but STS, as in Airflow
                "extra": {
                    "endpoint_url": "http://a",
                    "service_config": {"sqs": {"endpoint_url": "http://b"}, "glue": {"x": 1}},
                    "config_kwargs": {
                        "s3": {"addressing_style": "path"},
                        "retries": {"max_attempts": 2},
                    },
                    "verify": "false",
                }
            },
            AwsAccess(
                endpoint_urls={
                    "s3": "http://a",
                    "sqs": "http://b",
                    "sns": "http://a",
                    "events": "http://a",
                },
                path_style=True,
                verify=False,
            ),
        ),
        (
            {
                "extra": {
                    "verify": "/etc/ca.pem",
                    "service_config": {
                        "s3": {
                            "endpoint_url": "http://s3",
                            "config_kwargs": {"s3": {"addressing_style": "path"}},
                        },
                        "sts": {"endpoint_url": "http://sts"},
                    },
                }
            },
            AwsAccess(
                endpoint_urls={"s3": "http://s3", "sts": "http://sts"},
                path_style=True,
                verify="/etc/ca.pem",
            ),
        ),
    ],
)
def test_an_aws_connection(fields: dict[str, Any], expected: AwsAccess) -> None:
    assert _access("aws", **fields) == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, AzureAccess()),
        ({"extra": {"managed_identity_client_id": "id"}}, AzureAccess(client_id="id")),
        (
            {"extra": {"sas_token": HUSH, "subscription_id": "1-2", "resource_group": "g"}},
            AzureAccess(sas_token=HUSH, subscription_id="1-2", resource_group="g"),
        ),
        ({"login": "account", "password": HUSH}, AzureAccess(account_key=HUSH)),
        (
            {
                "login": "account",
                "password": HUSH,
                "host": "https://account.blob.core.windows.net",  # a URI says which account
            },
            AzureAccess(account_key=HUSH),
        ),
        (
            {"extra": {"connection_string": HUSH, "sas_token": HUSH}, "password": HUSH},
            AzureAccess(connection_string=HUSH),
        ),
        (
            {"login": "id", "password": HUSH, "extra": {"tenant_id": "t"}},
            AzureAccess(tenant_id="t", client_id="id", client_secret=HUSH),
        ),
        (  # as the hook of the provider
            {
                "login": "id",
                "password": HUSH,
                "extra": {"tenant_id": "t", "shared_access_key": "key"},
            },
            AzureAccess(tenant_id="t", client_id="id", client_secret=HUSH),
        ),
        ({"password": HUSH, "extra": {"account_key": "key"}}, AzureAccess(account_key=HUSH)),
        ({"extra": {"sas_token": f"?sig={HUSH}"}}, AzureAccess(sas_token=f"sig={HUSH}")),
        (
            {"extra": {"sas_token": f"https://a.blob.core.windows.net/?sig={HUSH}"}},
            AzureAccess(sas_token=f"sig={HUSH}"),
        ),
        (
            {  # an emulator
                "login": "devstoreaccount1",
                "password": HUSH,
                "host": "http://127.0.0.1:10000/devstoreaccount1",
                "extra": {"queue_endpoint": "http://127.0.0.1:10001/devstoreaccount1"},
            },
            AzureAccess(
                account_key=HUSH,
                blob_endpoint="http://127.0.0.1:10000/devstoreaccount1",
                queue_endpoint="http://127.0.0.1:10001/devstoreaccount1",
            ),
        ),
        (
            {"password": HUSH, "host": "a.dfs.core.usgovcloudapi.net"},
            AzureAccess(account_key=HUSH, blob_endpoint="https://a.blob.core.usgovcloudapi.net"),
        ),
        ({"extra": {"extra__wasb__shared_access_key": HUSH}}, AzureAccess(account_key=HUSH)),
    ],
)
def test_an_azure_connection(fields: dict[str, Any], expected: AzureAccess) -> None:
    assert _access("wasb", **fields) == expected


KEY = {"type": "service_account", "private_key": f"-----BEGIN\n{HUSH}\n"}


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ({}, GcpAccess()),
        ({"project": "p", "num_retries": 5}, GcpAccess(project="p")),
        ({"keyfile_dict": KEY}, GcpAccess(keyfile_json=json.dumps(KEY))),
        ({"keyfile_dict": json.dumps(KEY)}, GcpAccess(keyfile_json=json.dumps(KEY))),
        (
            {"extra__google_cloud_platform__key_path": "/etc/key.json", "scope": ""},
            GcpAccess(keyfile_path="/etc/key.json"),
        ),
        (
            {
                "is_anonymous": "True",
                "project": "p",
                "storage_endpoint": "http://127.0.0.1:4443",
                "pubsub_endpoint": "127.0.0.1:8085",
            },
            GcpAccess(
                anonymous=True,
                project="p",
                storage_endpoint="http://127.0.0.1:4443",
                pubsub_endpoint="127.0.0.1:8085",
            ),
        ),
    ],
)
def test_a_google_connection(extra: dict[str, Any], expected: GcpAccess) -> None:
    assert _access("google_cloud_platform", extra=extra) == expected


def test_the_connection_that_airflow_makes_by_itself_is_taken() -> None:
    assert _access("google_cloud_platform", schema="default") == GcpAccess()
    assert _access("aws") == AwsAccess()
    assert _access("wasb", extra={"sas_token": None}) == AzureAccess()


def test_a_key_that_a_form_has_written_on_one_line_is_read() -> None:
    written = {**KEY, "private_key": KEY["private_key"].replace("\n", "\\n")}
    assert _access("google_cloud_platform", extra={"keyfile_dict": written}) == GcpAccess(
        keyfile_json=json.dumps(KEY)
    )


def test_a_file_connection_has_no_access() -> None:
    assert _access("fs", extra={"path": "/data"}) is None


KEY_TEXT = f"-----BEGIN OPENSSH PRIVATE KEY-----\n{HUSH}\n"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, SftpAccess(host="h")),
        (
            {"login": "u", "password": HUSH, "port": 2222, "extra": {"host_key": "ssh-rsa A"}},
            SftpAccess(host="h", port=2222, user="u", password=HUSH, host_key="ssh-rsa A"),
        ),
        (
            {
                "extra": {
                    "key_file": "/k",
                    "private_key_passphrase": HUSH,
                    "known_hosts": "/kh",
                    "look_for_keys": "false",
                    "conn_timeout": 5,
                    "max_connections": "1",
                }
            },
            SftpAccess(
                host="h",
                key_file="/k",
                passphrase=HUSH,
                known_hosts="/kh",
                uses_own_keys=False,
                max_connections=1,
            ),
        ),
        (
            {"extra": {"private_key": KEY_TEXT.replace("\n", "\\n"), "no_host_key_check": "true"}},
            SftpAccess(host="h", private_key=KEY_TEXT, checks_host_key=False),
        ),
        ({"extra": {"no_host_key_check": "false", "host_key": ""}}, SftpAccess(host="h")),
    ],
)
@pytest.mark.parametrize("conn_type", ["sftp", "ssh", "cloudfiles_sftp"])
def test_an_sftp_connection(conn_type: str, fields: dict[str, Any], expected: SftpAccess) -> None:
    assert _access(conn_type, host="h", **fields) == expected


def test_a_key_of_a_server_that_is_not_checked_is_told(caplog: pytest.LogCaptureFixture) -> None:
    _access("sftp", host="h", extra={"no_host_key_check": True})
    assert "any server can pose as h" in caplog.text


@pytest.mark.parametrize(
    ("conn_type", "fields", "named"),
    [
        ("sftp", {"password": HUSH}, "no host"),
        ("sftp", {"host": "h", "extra": {"host_proxy_cmd": HUSH}}, "host_proxy_cmd"),
        ("ssh", {"host": "h", "extra": {"allow_host_key_change": True}}, "allow_host_key_change"),
        ("sftp", {"host": "h", "extra": {"private_key": HUSH, "key_file": "/k"}}, "Keep the one"),
        ("sftp", {"host": "h", "extra": {"no_host_key_check": 1, "host_key": "k"}}, "one of them"),
        ("sftp", {"host": "h", "extra": {"max_connections": HUSH}}, "whole number"),
        ("sftp", {"host": "h", "extra": {"max_connections": 0}}, "1 at least"),
        ("cloudfiles_sftp", {"host": "h", "extra": {"private_kee": HUSH}}, "private_kee"),
        ("aws", {"extra": {"assume_role_method": "assume_role_with_saml"}}, "assume_role_method"),
        ("aws", {"extra": {"assume_role_with_saml": {"idp_url": HUSH}}}, "assume_role_with_saml"),
        ("aws", {"extra": {"config_kwargs": {"signature_version": "unsigned"}}}, "signature_vers"),
        ("aws", {"extra": {"config_kwargs": {"proxies": {"https": HUSH}}}}, "HTTPS_PROXY"),
        ("aws", {"extra": {"assume_role_kwargs": {"Policy": HUSH}}}, "Policy"),
        ("aws", {"extra": {"role_arm": "arn"}}, "role_arm"),
        ("aws", {"port": 9000}, "port is refused. It means nothing without a host"),
        ("aws", {"schema": "https"}, "schema is refused"),
        ("aws", {"schema": HUSH, "host": "minio"}, "schema is refused. It can be http"),
        ("aws", {"host": "a", "extra": {"endpoint_url": "http://b"}}, "endpoint_url and host"),
        ("aws", {"extra": {"extra_args": {"ACL": HUSH}}}, "extra_args: the extra field 'ACL'"),
        (
            "aws",
            {"extra": {"extra_args": {"RequestPayer": HUSH}}},
            "RequestPayer must be requester",
        ),
        (
            "aws",
            {"extra": {"config_kwargs": {"request_checksum_calculation": HUSH}}},
            "request_checksum_calculation must be when_required or when_supported",
        ),
        ("wasb", {"schema": HUSH}, "schema is refused"),
        ("wasb", {"port": 10000, "password": HUSH}, "port is refused"),
        ("google_cloud_platform", {"host": HUSH}, "host is refused.*storage_endpoint"),
        ("google_cloud_platform", {"port": 4443}, "port is refused"),
        ("google_cloud_platform", {"schema": HUSH}, "schema is refused"),
        ("google_cloud_platform", {"password": HUSH}, "password is refused.*keyfile_dict"),
        ("google_cloud_platform", {"login": HUSH}, "login is refused"),
        ("sftp", {"host": "h", "schema": HUSH}, "schema is refused"),
        ("aws", {"login": "AKIA"}, "one half"),
        ("aws", {"extra": f"{{{HUSH}"}, "JSON object"),
        ("aws", {"extra": {"service_config": {"s3": HUSH}}}, "JSON object"),
        ("wasb", {"extra": {"workload_identity_tenant_id": HUSH}}, "workload_identity"),
        ("wasb", {"extra": {"tenant_id": "t"}, "password": HUSH}, "service principal"),
        ("adls", {"extra": {"sas_tokn": HUSH}}, "sas_tokn"),
        ("google_cloud_platform", {"extra": {"impersonation_chain": HUSH}}, "impersonation_chain"),
        ("google_cloud_platform", {"extra": {"key_secret_name": HUSH}}, "keyfile_dict"),
        ("google_cloud_platform", {"extra": {"credential_config_file": HUSH}}, "GOOGLE_APP"),
        ("google_cloud_platform", {"extra": {"keyfile_dict": f"{{{HUSH}"}}, "JSON object"),
        ("google_cloud_platform", {"extra": {"keyfile_dict": KEY, "key_path": "k.json"}}, "one of"),
        ("google_cloud_platform", {"extra": {"key_path": "key.p12"}}, "P12"),
        ("google_cloud_platform", {"extra": {"is_anonymous": HUSH}}, "is_anonymous"),
        ("postgres", {"password": HUSH}, "google_cloud_platform"),
    ],
)
def test_what_is_not_offered_is_refused_by_name_and_without_a_secret(
    conn_type: str, fields: dict[str, Any], named: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(OptionError, match=named) as refused:
        _access(conn_type, **fields)
    shown: BaseException | None = refused.value
    while shown is not None:
        assert HUSH not in f"{shown} {shown!r}"
        shown = shown.__cause__
    assert HUSH not in caplog.text


@pytest.mark.parametrize(
    ("own", "cloud", "fields"),
    [
        ("cloudfiles_aws", "aws", {"login": "AKIA", "password": HUSH}),
        ("cloudfiles_azure", "wasb", {"password": HUSH, "extra": {"queue_endpoint": "http://q"}}),
        ("cloudfiles_gcp", "google_cloud_platform", {"extra": {"keyfile_dict": KEY}}),
    ],
)
def test_our_own_types_have_the_fields_of_the_clouds_types(
    own: str, cloud: str, fields: dict[str, Any]
) -> None:
    assert _access(own, **fields) == _access(cloud, **fields)
    extra = {**fields.get("extra", {}), "test_location": "s3://lake/_state"}
    assert _access(own, **{**fields, "extra": extra}) == _access(cloud, **fields)
    with pytest.raises(OptionError, match=f"{own}.*'role_arm'"):
        _access(own, extra={"role_arm": "x"})


def test_the_type_that_airflow_stores_for_unknown_ones_says_what_to_do() -> None:
    with pytest.raises(UnsupportedOptionError, match="--conn-type cloudfiles_aws") as refused:
        _access("generic", login="AKIA", password=HUSH)
    assert "'generic', which Airflow stores" in str(refused.value)


def test_an_unknown_kind_is_unsupported_not_misread() -> None:
    with pytest.raises(UnsupportedOptionError, match="'snowflake'"):
        _access("snowflake")


@pytest.mark.parametrize(
    ("conn_type", "fields"),
    [
        ("aws", {"login": "AKIA", "password": HUSH, "extra": {"aws_session_token": HUSH}}),
        ("wasb", {"password": HUSH}),
        ("wasb", {"extra": {"connection_string": HUSH}}),
        ("wasb", {"login": "id", "password": HUSH, "extra": {"tenant_id": "t"}}),
        ("google_cloud_platform", {"extra": {"keyfile_dict": KEY}}),
        ("sftp", {"host": "h", "password": HUSH}),
        ("sftp", {"host": "h", "extra": {"private_key": KEY_TEXT, "passphrase": HUSH}}),
    ],
)
def test_a_secret_is_in_no_representation_and_survives_the_way_to_the_driver(
    conn_type: str, fields: dict[str, Any]
) -> None:
    access = _access(conn_type, **fields)
    assert access is not None
    assert HUSH not in repr(access)
    assert from_environment(to_environment(access)) == access


def test_airflow_masks_a_connections_secrets_from_then_on() -> None:
    from airflow.providers.common.compat.sdk import redact

    _access("wasb", extra={"connection_string": "AccountKey=masked-6f1;"})
    assert redact("the key is AccountKey=masked-6f1;") == "the key is ***"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\n\n"])
@pytest.mark.parametrize(
    ("conn_type", "fields"),
    [
        ("aws", {"login": "AKIA", "password": HUSH}),
        ("aws", {"extra": {"aws_access_key_id": "AKIA", "aws_secret_access_key": HUSH}}),
        ("aws", {"login": "AKIA", "password": HUSH, "extra": {"aws_session_token": HUSH}}),
        ("aws", {"extra": {"role_arn": "arn", "assume_role_kwargs": {"ExternalId": HUSH}}}),
        ("wasb", {"login": "account", "password": HUSH}),
        ("wasb", {"extra": {"connection_string": HUSH}}),
        ("wasb", {"extra": {"sas_token": HUSH}}),
        ("wasb", {"extra": {"shared_access_key": HUSH}}),
        ("wasb", {"login": "id", "password": HUSH, "extra": {"tenant_id": "t"}}),
        ("sftp", {"host": "h", "password": HUSH}),
        ("sftp", {"host": "h", "extra": {"key_file": "/k", "private_key_passphrase": HUSH}}),
    ],
)
def test_a_line_end_of_a_mounted_file_is_no_part_of_a_credential(
    conn_type: str, fields: dict[str, Any], end: str
) -> None:
    from airflow.providers.common.compat.sdk import redact

    def ended(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: ended(each) for name, each in value.items()}
        return value + end

    assert _access(conn_type, **ended(fields)) == _access(conn_type, **fields)
    assert HUSH not in str(redact(f"Invalid header value b'{HUSH}'"))


@pytest.mark.parametrize(
    ("conn_type", "fields"),
    [
        ("aws", {"login": "AKIA", "password": f"{HUSH}\nx"}),
        ("aws", {"login": "A", "password": "x", "extra": {"aws_session_token": f"{HUSH}\x00"}}),
        ("wasb", {"extra": {"sas_token": f"sig={HUSH}\n&se=x"}}),
        ("wasb", {"login": "id", "password": f"{HUSH}\nx", "extra": {"tenant_id": "t"}}),
        ("sftp", {"host": "h", "password": f"x\r{HUSH}"}),
    ],
)
def test_a_secret_with_a_line_end_in_it_is_refused_unseen(
    conn_type: str, fields: dict[str, Any]
) -> None:
    with pytest.raises(OptionError, match="line end or another control character") as refused:
        _access(conn_type, **fields)
    assert HUSH not in f"{refused.value} {refused.value!r} {refused.value.__cause__!r}"


def test_a_connection_string_may_be_written_in_lines() -> None:
    written = "AccountName=account;\n  AccountKey=masked;\n"
    expected = AzureAccess(connection_string="AccountName=account;AccountKey=masked;")
    assert _access("wasb", extra={"connection_string": written}) == expected


def test_a_key_keeps_its_lines() -> None:
    found = _access("sftp", host="h", extra={"private_key": KEY_TEXT})
    assert isinstance(found, SftpAccess)
    assert found.private_key == KEY_TEXT
