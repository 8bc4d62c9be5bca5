"""A machine's identity: what gives it may be away for a moment, and files of keys are renewed."""

from __future__ import annotations

import itertools
import json
import os
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from airflow_cloudfiles.engine.clouds.aws.access import AwsAccess
from airflow_cloudfiles.engine.clouds.aws.session import aws_client, aws_credentials
from airflow_cloudfiles.engine.clouds.azure.access import AzureAccess
from airflow_cloudfiles.engine.clouds.gcp.access import GcpAccess
from airflow_cloudfiles.engine.clouds.gcp.client import key_file
from airflow_cloudfiles.engine.errors import TargetUnreachableError
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.storage.access import ENVIRONMENT, to_environment
from airflow_cloudfiles.engine.storage.flat_store import ClientPerProcess
from airflow_cloudfiles.engine.storage.outage import is_transient
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from tests.support.emulators.processes import free_port
from tests.support.serving import serving

ROLE = "arn:aws:iam::000000000000:role/reader"


class Metadata(ThreadingHTTPServer):
    """The metadata service of a machine, in three clouds; `status` 200 while it is well."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = 200
        self.host = f"127.0.0.1:{self.server_port}"

    def answer(self, path):
        ends = datetime.now(UTC) + timedelta(hours=6)
        if "iam/security-credentials/" in path and not path.endswith("/"):
            return {
                "Code": "Success",
                "AccessKeyId": "test",
                "SecretAccessKey": "secret",
                "Token": "token",
                "Expiration": ends.strftime("%Y-%m-%dT%H:%M:%SZ"),
            }
        if "/service-accounts/" in path and path.endswith("token"):
            return {"access_token": "t", "expires_in": 3600, "token_type": "Bearer"}
        if "/oauth2/token" in path:
            return {"access_token": "t", "expires_in": "3600", "expires_on": str(2**31)}
        if "/service-accounts/" in path:
            return {"email": "a@b", "scopes": [], "aliases": ["default"]}
        if path.endswith(("universe_domain", "universe-domain")):
            return "googleapis.com"
        return "role" if "security-credentials" in path else "project"


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        is_well = self.server.status == 200
        found = self.server.answer(self.path.partition("?")[0]) if is_well else "not now"
        content = (found if isinstance(found, str) else json.dumps(found)).encode()
        self.send_response(self.server.status)
        self.send_header("Metadata-Flavor", "Google")
        self.send_header("Content-Length", str(len(content)))
        kind = "text/plain" if isinstance(found, str) else "application/json"
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(content)

    do_PUT = do_GET  # noqa: N815 - a token of IMDSv2

    def log_message(self, *_):
        pass


@pytest.fixture
def metadata():
    with serving(Metadata()) as server:
        yield server


@pytest.fixture(autouse=True)
def _nothing_else(monkeypatch, tmp_path):
    """No identity but that of the machine."""
    for name in tuple(os.environ):
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_", "GCE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "gcloud"))
    monkeypatch.setenv("HOME", str(tmp_path))


def must_pass(call):
    """What a call raises is an outage, and names no permission."""
    with pytest.raises(OSError, match="metadata service of this machine") as raised:
        call()
    assert is_transient(raised.value)
    assert "Grant" not in str(raised.value)


# ── AWS ─────────────────────────────────────────────────────────────────────────────────────────


def of_machine(aws, **fields):
    return AwsAccess(
        region="us-east-1", endpoint_urls={"": aws.endpoint}, path_style=True, **fields
    )


@pytest.mark.parametrize("role", [None, ROLE])
def test_a_moment_without_the_metadata_service_of_ec2_is_an_outage(
    aws, metadata, monkeypatch, role
):
    uri = aws.bucket()
    open_store(uri, aws.access).put("a", b"1")
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f"http://{metadata.host}/")
    store = open_store(uri, of_machine(aws, role_arn=role))
    metadata.status = 503
    must_pass(lambda: store.head("a"))
    must_pass(lambda: store.head("a"))
    metadata.status = 200
    assert store.get("a") == b"1"


def test_credentials_that_cannot_be_renewed_now_are_an_outage(aws, metadata, monkeypatch):
    uri = aws.bucket()
    open_store(uri, aws.access).put("a", b"1")
    monkeypatch.setattr("botocore.utils.ContainerMetadataFetcher.SLEEP_TIME", 0)
    host = f"http://{metadata.host}/"
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{host}iam/security-credentials/x")
    store = open_store(uri, of_machine(aws))
    metadata.status = 503
    must_pass(lambda: store.head("a"))
    metadata.status = 403
    with pytest.raises(PermissionError, match="no credentials for AWS"):
        store.head("a")
    metadata.status = 200
    assert store.get("a") == b"1"


def test_a_table_is_out_of_reach_while_nothing_gives_credentials(aws, metadata, monkeypatch):
    monkeypatch.setattr("botocore.utils.ContainerMetadataFetcher.SLEEP_TIME", 0)
    host = f"http://{metadata.host}/"
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{host}iam/security-credentials/x")
    monkeypatch.setenv(ENVIRONMENT, to_environment(of_machine(aws, role_arn=ROLE))[ENVIRONMENT])
    table = DeltaLocation.of("s3://bucket/table")
    metadata.status = 503
    with pytest.raises(TargetUnreachableError, match="metadata service of this machine"):
        table.storage_options()
    metadata.status = 200
    assert table.storage_options()["aws_access_key_id"]


def test_a_file_of_keys_that_is_renewed_is_read_again(aws, tmp_path):
    file = tmp_path / "credentials"
    access = of_machine(aws, profile="landing")

    def write(key):
        text = f"[landing]\naws_access_key_id = {key}\naws_secret_access_key = secret\n"
        (tmp_path / "new").write_text(text)
        (tmp_path / "new").replace(file)

    def key_of_client(given):
        client = aws_client("s3", given)
        return client.generate_presigned_url("get_object", {"Bucket": "b", "Key": "k"})

    for key in ("FIRST", "OTHER", "THIRD"):
        write(key)
        assert f"={key}&" in key_of_client(access)
        assert aws_credentials(access).access_key == key
    assert aws_client("s3", access) is aws_client("s3", access)


# ── Azure ───────────────────────────────────────────────────────────────────────────────────────


def test_a_moment_without_azures_metadata_service_is_an_outage(monkeypatch):
    monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "ManagedIdentityCredential")
    access = AzureAccess(blob_endpoint="https://127.0.0.1:1/account")
    store = open_store("abfss://c@account.dfs.core.windows.net", access)
    store._retries = 0
    must_pass(lambda: store.head("a"))


# ── Google ──────────────────────────────────────────────────────────────────────────────────────


def test_a_moment_without_googles_metadata_service_is_an_outage(gcs, metadata, monkeypatch):
    uri = gcs.bucket()
    open_store(uri, gcs.access).put("a", b"1")
    monkeypatch.setenv("GCE_METADATA_HOST", metadata.host)
    monkeypatch.setenv("GCE_METADATA_ROOT", metadata.host)
    monkeypatch.setenv("GCE_METADATA_IP", metadata.host)
    access = GcpAccess(storage_endpoint=gcs.endpoint)
    metadata.status = 503
    store = open_store(uri, access)
    must_pass(lambda: store.head("a"))
    metadata.status = 200
    assert store.get("a") == b"1"


def test_a_client_is_another_one_when_its_key_file_has_changed(tmp_path, monkeypatch):
    file = tmp_path / "key.json"
    made = itertools.count()
    clients = ClientPerProcess(
        lambda: next(made), lambda: key_file(GcpAccess(keyfile_path=str(file)))
    )
    file.write_text("1")
    assert [clients.get(), clients.get()] == [0, 0]
    file.write_text("22")
    assert [clients.get(), clients.get()] == [1, 1]
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/elsewhere")
    assert key_file(None) == "/elsewhere"
    assert key_file(GcpAccess(anonymous=True)) is None
