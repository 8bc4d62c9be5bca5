"""What tests with the providers of the clouds share: they skip where these are not installed."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import Connection
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.support.token_services import TokenServices, token_services

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session", autouse=True)
def _providers() -> None:
    for name in ("amazon", "common.messaging", "microsoft", "google"):
        if find_spec(f"airflow.providers.{name}") is None:
            pytest.skip("Not all of Airflow's providers are here: run `make providers`")


@pytest.fixture(autouse=True)
def _nothing_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No identity but what a test gives."""
    for name in tuple(os.environ):
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_", "GCE_", "IDENTITY_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "gcloud"))
    monkeypatch.setenv("NO_GCE_CHECK", "true")


@pytest.fixture
def connection() -> Callable[..., Connection]:
    """Make a connection with a name that no other test has."""

    def made(conn_type: str, *, extra: object = None, **fields: Any) -> Connection:
        text = None if extra is None else json.dumps(extra)
        return Connection(
            conn_id=f"landing_{next(_NUMBERS)}", conn_type=conn_type, extra=text, **fields
        )

    return made


@pytest.fixture
def services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TokenServices]:
    """The services that give tokens, reached by this process and its children."""
    with token_services(tmp_path) as found:
        for name, value in found.environment.items():
            monkeypatch.setenv(name, value)
        yield found


@pytest.fixture
def google_key() -> dict[str, str]:
    """The key of a service account."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    text = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return {
        "type": "service_account",
        "client_email": "loader@acme.iam.gserviceaccount.com",
        "private_key": text.decode(),
        "private_key_id": "1",
        "project_id": "acme",
        "token_uri": "https://oauth2.googleapis.com/token",
    }
