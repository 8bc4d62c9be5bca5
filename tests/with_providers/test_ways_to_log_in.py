"""Each way to log in that a provider documents gives credentials, in this process and in a child.

A child is what a driver on this machine is: it has the access in its environment, and no Airflow.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_cloudfiles.engine.clouds.aws.session import aws_client, aws_credentials
from airflow_cloudfiles.engine.clouds.azure.access import AzureAccess
from airflow_cloudfiles.engine.clouds.azure.client import open_account
from airflow_cloudfiles.engine.clouds.gcp.access import GcpAccess
from airflow_cloudfiles.engine.clouds.gcp.client import google_credentials
from airflow_cloudfiles.engine.errors import UnsupportedOptionError
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.storage.access import ENVIRONMENT, to_environment
from airflow_cloudfiles.engine.storage.base import ObjectNotFoundError
from airflow_cloudfiles.engine.storage.identities import ServedIdentity
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from airflow_cloudfiles.hooks.access import access_of
from tests.support.machine_identity import identities
from tests.support.token_services import BLOBS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow.providers.common.compat.sdk import Connection

    from airflow_cloudfiles.engine.storage.access import Access
    from tests.support.emulators.aws import Aws
    from tests.support.token_services import TokenServices

ROLE = "arn:aws:iam::000000000000:role"
KEYS = {"login": "test", "password": "test-secret"}
SCOPE = "https://storage.azure.com/.default"
SHORT = 900
"""Seconds of a role's session: botocore renews each that lasts no longer before it is used."""

CHILD = """
import json, sys
from airflow_cloudfiles.engine.storage.access import from_environment
from airflow_cloudfiles.engine.clouds.aws.session import aws_client, aws_credentials
from airflow_cloudfiles.engine.clouds.azure.client import open_account
from airflow_cloudfiles.engine.storage.base import ObjectNotFoundError
from airflow_cloudfiles.engine.clouds.gcp.client import google_credentials

assert "airflow" not in sys.modules
access = from_environment()
for line in sys.stdin:
    if line == "aws\\n":
        found = aws_credentials(access).access_key
        aws_client("s3", access).head_bucket(Bucket=json.loads(sys.stdin.readline()))
    elif line == "azure\\n":
        credential = open_account("account", access, "blob").credential
        found = credential.get_token("https://storage.azure.com/.default").token
    else:
        from google.auth.transport.requests import Request
        credentials = google_credentials(access)
        credentials.refresh(Request())
        found = credentials.token
    print(found, flush=True)
"""


@contextmanager
def _child(access: Access) -> Iterator[Callable[..., str]]:
    """A process that gets an access as a driver does; what it answers to a question."""
    identity = getattr(access, "identity", None)
    assert identity is not None
    served = ServedIdentity(identity)
    handed = to_environment(replace(access, identity=served.path))
    given = json.loads(handed[ENVIRONMENT])
    kept = {"kind", "identity", "region", "endpoint_urls", "path_style", "verify", "project"}
    assert {name for name, value in given.items() if value} <= kept | {"quota_project"}
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **handed},
    )

    def ask(*lines: str) -> str:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("".join(f"{line}\n" for line in lines))
        process.stdin.flush()
        return process.stdout.readline().strip()

    with process:
        yield ask
        served.close()
        assert process.stdin is not None
        process.stdin.close()


def _by_hook(made: Connection) -> Any:
    access = access_of(made)
    assert getattr(access, "identity", None) is not None
    return access


# ── Amazon ──────────────────────────────────────────────────────────────────────────────────────


def _files(folder: Path, aws: Aws) -> None:
    """Profiles: keys, a chain of roles, what a program gives."""
    program = {"Version": 1, "AccessKeyId": "test-program", "SecretAccessKey": "secret"}
    (folder / "program.json").write_text(json.dumps(program))
    (folder / "config").write_text(
        "[profile landing]\naws_access_key_id = test\naws_secret_access_key = secret\n"
        f"[profile chain]\nrole_arn = {ROLE}/first\nsource_profile = landing\n"
        f"services = here\n[services here]\nsts =\n  endpoint_url = {aws.endpoint}\n"
        f"[profile program]\ncredential_process = cat {folder}/program.json\n"
    )
    (folder / "token").write_text("a.web.identity")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (KEYS, ":root"),
        ({"extra": {"aws_access_key_id": "test", "aws_secret_access_key": "secret"}}, ":root"),
        ({"extra": {"session_kwargs": {"aws_access_key_id": "test",
                                       "aws_secret_access_key": "secret"}}}, ":root"),
        ({"extra": {"profile_name": "landing"}}, ":root"),
        ({"extra": {"profile_name": "program"}}, ":root"),
        ({"extra": {"profile_name": "chain"}}, "assumed-role/first/"),
        ({**KEYS, "extra": {"role_arn": f"{ROLE}/reader"}}, "assumed-role/reader/airflow_landing"),
        (
            {**KEYS, "extra": {"role_arn": f"{ROLE}/reader", "assume_role_method": "assume_role",
             "assume_role_kwargs": {"ExternalId": "12", "RoleSessionName": "mine",
                                    "Tags": [{"Key": "a", "Value": "b"}]}}},
            "assumed-role/reader/mine",
        ),
        ({"extra": {"profile_name": "chain", "role_arn": f"{ROLE}/second"}},
         "assumed-role/second/"),
        (
            {"extra": {"role_arn": f"{ROLE}/web",
                       "assume_role_method": "assume_role_with_web_identity",
                       "assume_role_with_web_identity_federation": "file",
                       "assume_role_with_web_identity_token_file": "TOKEN"}},
            "assumed-role/web/",
        ),
        ({}, ":root"),
    ],
    ids=["login", "extra", "session_kwargs", "profile", "program", "profile of a chain", "role",
         "role with arguments", "role after a chain", "web identity", "the machine's"],
)  # fmt: skip
def test_amazon(
    fields: dict[str, Any],
    expected: str,
    aws: Aws,
    connection: Callable[..., Connection],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    _files(tmp_path, aws)
    bucket = aws.bucket().removeprefix("s3://")
    sts = {"sts": {"endpoint_url": aws.endpoint}}
    extra = {**fields.get("extra", {}), "endpoint_url": aws.endpoint, "service_config": sts,
             "config_kwargs": {"s3": {"addressing_style": "path"}}}  # fmt: skip
    extra = json.loads(json.dumps(extra).replace("TOKEN", str(tmp_path / "token")))
    extra.setdefault("region_name", "us-east-1")
    with identities() as machine:
        if not fields:
            for name, value in machine.environment("worker").items():
                monkeypatch.setenv(name, value)
        access = _by_hook(connection("aws", **{**fields, "extra": extra}))
        who = aws_client("sts", access).get_caller_identity()["Arn"]
        assert expected in who
        aws_client("s3", access).head_bucket(Bucket=bucket)
        with _child(access) as ask:
            ends = "role" in expected
            key = ask("aws", json.dumps(bucket))
            found = aws_credentials(access)
            assert found is not None
            assert (key == found.access_key) or not fields or ends
            assert key.startswith("ASIA" if ends else ("worker" if not fields else "test"))


def test_keys_of_a_role_are_renewed_here_and_in_a_child(
    aws: Aws, connection: Callable[..., Connection]
) -> None:
    bucket = aws.bucket().removeprefix("s3://")
    extra = {"role_arn": f"{ROLE}/reader", "assume_role_kwargs": {"DurationSeconds": SHORT},
             "region_name": "us-east-1", "endpoint_url": aws.endpoint,
             "service_config": {"sts": {"endpoint_url": aws.endpoint}},
             "config_kwargs": {"s3": {"addressing_style": "path"}}}  # fmt: skip
    access = _by_hook(connection("aws", **KEYS, extra=extra))
    found = [aws_credentials(access) for _ in range(3)]
    assert len({each.access_key for each in found if each}) == len(found)
    with _child(access) as ask:
        keys = {ask("aws", json.dumps(bucket)) for _ in range(3)}
    assert len(keys) == len(found)


def test_a_proxy_of_a_connection_is_gone_through(
    services: TokenServices, connection: Callable[..., Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HTTPS_PROXY")
    config = {"proxies": {"https": services.address}, "signature_version": "unsigned"}
    bundle = services.environment["SSL_CERT_FILE"]
    extra = {"endpoint_url": f"https://{BLOBS}", "config_kwargs": config,
             "verify": bundle, "region_name": "us-east-1"}  # fmt: skip
    access = _by_hook(connection("aws", **KEYS, extra=extra))
    with pytest.raises(ObjectNotFoundError):
        open_store("s3://bucket", access).get("key")
    [asked] = services.sent_to(BLOBS) or services.sent_to(f"bucket.{BLOBS}")
    assert "authorization" not in asked.headers
    monkeypatch.setenv(ENVIRONMENT, to_environment(access)[ENVIRONMENT])
    options = DeltaLocation.of("s3://bucket/table").storage_options()
    assert options["proxy_url"] == services.address
    assert options["aws_skip_signature"] == "true"
    assert services.address not in repr(access)


# ── Microsoft ───────────────────────────────────────────────────────────────────────────────────

TENANT = {"tenant_id": "acme.com"}
ID_PAIR = {"managed_identity_client_id": "mine", "workload_identity_tenant_id": "acme.com"}


@pytest.mark.parametrize(
    ("conn_type", "fields", "expected"),
    [
        ("wasb", {"login": "id", "password": "s1", "extra": TENANT}, "entra-acme.com-id-s1"),
        ("adls", {"login": "id", "password": "s1", "host": "account", "extra": TENANT},
         "entra-acme.com-id-s1"),
        ("wasb", {"login": "id", "password": "s1", "extra": {**TENANT,
          "client_secret_auth_config": {"additionally_allowed_tenants": ["*"]}}},
         "entra-acme.com-id-s1"),
        ("wasb", {"login": "account"}, "entra-pods.com-pod-a.pod"),
        ("adls", {"host": "account"}, "entra-pods.com-pod-a.pod"),
        ("wasb", {"login": "account", "extra": ID_PAIR}, "entra-acme.com-mine-a.pod"),
    ],
    ids=["principal", "principal of adls", "principal with settings", "workload identity",
         "workload identity of adls", "identity with its tenant"],
)  # fmt: skip
def test_microsoft(
    conn_type: str,
    fields: dict[str, Any],
    expected: str,
    services: TokenServices,
    connection: Callable[..., Connection],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    (tmp_path / "pod").write_text("a.pod")
    monkeypatch.setenv("AZURE_FEDERATED_TOKEN_FILE", str(tmp_path / "pod"))
    monkeypatch.setenv("AZURE_TENANT_ID", "pods.com")
    monkeypatch.setenv("AZURE_CLIENT_ID", "pod")
    access = _by_hook(connection(conn_type, **fields))
    assert isinstance(access, AzureAccess)
    token = open_account("account", access, "blob").credential.get_token(SCOPE).token
    assert token.startswith(expected)
    with pytest.raises(ObjectNotFoundError):
        open_store("abfss://c@account.dfs.core.windows.net", access).get("key")
    [asked] = services.sent_to(BLOBS)
    assert asked.headers["authorization"].startswith(f"Bearer {expected}")
    with _child(access) as ask:
        assert ask("azure").startswith(expected)
    monkeypatch.setenv(ENVIRONMENT, to_environment(access)[ENVIRONMENT])
    options = DeltaLocation.of("abfss://c@account.dfs.core.windows.net/table").storage_options()
    assert options["azure_storage_token"].startswith(expected)


def test_tokens_of_entra_are_renewed_here_and_in_a_child(
    services: TokenServices, connection: Callable[..., Connection]
) -> None:
    services.seconds = 200  # Microsoft's clients renew what ends within 300 before it is used
    access = _by_hook(connection("wasb", login="id", password="s1", extra=TENANT))
    credential = open_account("account", access, "blob").credential
    assert len({credential.get_token(SCOPE).token for _ in range(3)}) == 3
    with _child(access) as ask:
        assert len({ask("azure") for _ in range(3)}) == 3


def test_an_identity_of_a_machine_that_the_hook_would_pass_over_is_read_here(
    connection: Callable[..., Connection],
) -> None:
    given = connection("wasb", login="account", extra={"managed_identity_client_id": "mine"})
    assert access_of(given) == AzureAccess(client_id="mine")


# ── Google ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.filterwarnings("ignore:The load_credentials_from_:DeprecationWarning")
@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ({"impersonation_chain": "target@acme"}, "target@acme-by-key"),
        ({"impersonation_chain": "via@acme,target@acme"}, "target@acme-by-key"),
        ({"scope": "https://www.googleapis.com/auth/devstorage.read_write"}, "key"),
        ({"quota_project_id": "acme-billing"}, "key"),
        ({"credential_config_file": "FILE"}, "federated-a.pod"),
        ({"credential_config_file": "TEXT"}, "federated-a.pod"),
        ({"credential_config_file": "TEXT", "idp_issuer_url": "https://idp.acme.com/token",
          "client_id": "me", "client_secret": "s1"}, "federated-idp-me-s1"),
        ({"credential_config_file": "FILE", "impersonation_chain": "target@acme"},
         "target@acme-by-federated"),
    ],
    ids=["impersonation", "chain", "scope", "quota project", "federation by file",
         "federation by text", "federation by an issuer", "impersonation after federation"],
)  # fmt: skip
def test_google(
    extra: dict[str, Any],
    expected: str,
    services: TokenServices,
    connection: Callable[..., Connection],
    google_key: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    (tmp_path / "pod").write_text("a.pod")
    source = {
        "type": "external_account",
        "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": "https://sts.googleapis.com/v1/token",
        "credential_source": {"file": str(tmp_path / "pod")},
    }
    (tmp_path / "federation.json").write_text(json.dumps(source))
    if "idp_issuer_url" in extra:
        del source["credential_source"]
    given = {"FILE": str(tmp_path / "federation.json"), "TEXT": json.dumps(source)}
    fields = {name: given.get(value, value) for name, value in extra.items()}
    if "credential_config_file" not in extra:
        fields["keyfile_dict"] = google_key
    access = _by_hook(connection("google_cloud_platform", extra={**fields, "project": "acme"}))
    assert isinstance(access, GcpAccess)
    with pytest.raises(ObjectNotFoundError):
        open_store("gs://bucket", access).get("key")
    sent = services.sent_to("storage.googleapis.com")
    assert sent
    for asked in sent:
        assert asked.headers["authorization"].startswith(f"Bearer {expected}")
        assert asked.headers.get("x-goog-user-project") == extra.get("quota_project_id")
    with _child(access) as ask:
        assert ask("google").startswith(expected)


def test_tokens_of_google_are_renewed_here_and_in_a_child(
    services: TokenServices, connection: Callable[..., Connection], google_key: dict[str, str]
) -> None:
    from google.auth.transport.requests import Request

    services.seconds = 232  # Google's clients renew what ends within 225, and take no such token
    extra = {"keyfile_dict": google_key, "impersonation_chain": "target@acme"}
    access = _by_hook(connection("google_cloud_platform", extra=extra))
    found = google_credentials(access)
    tokens = []
    for _ in range(2):
        found.before_request(Request(), "GET", "https://storage.googleapis.com/", {})
        tokens.append(found.token)
        time.sleep(8)  # past the seven seconds that a client takes the token for
    with _child(access) as ask:
        tokens.append(ask("google"))
    assert len(set(tokens)) == 3


def test_a_delta_table_on_cloud_storage_refuses_a_token(
    connection: Callable[..., Connection],
    google_key: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    extra = {"keyfile_dict": google_key, "impersonation_chain": "target@acme"}
    access = _by_hook(connection("google_cloud_platform", extra=extra))
    monkeypatch.setenv(ENVIRONMENT, to_environment(access)[ENVIRONMENT])
    with pytest.raises(UnsupportedOptionError, match="Airflow's Google provider"):
        DeltaLocation.of("gs://bucket/table").storage_options()
