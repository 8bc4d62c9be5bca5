"""Azure's blobs and queues, as azurite gives them.

azurite knows no `dfs` endpoint, so ADLS Gen2 is what its Blob endpoint shows of it.
"""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_cloudfiles.engine.clouds.azure.access import AzureAccess
from tests.support.emulators.processes import Server, answers, free_port, program, running

if TYPE_CHECKING:
    from collections.abc import Iterator

    from azure.storage.blob import BlobServiceClient, ContainerClient
    from azure.storage.queue import QueueClient, QueueServiceClient

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Azurite's account and key are published: no secret."""


class Azurite:
    """A running azurite: how to reach it, and new containers and queues."""

    account = ACCOUNT
    key = KEY

    def __init__(self, blob_port: int, queue_port: int) -> None:
        self.blob_port = blob_port
        self.queue_port = queue_port
        self.blob_endpoint = f"http://127.0.0.1:{blob_port}/{ACCOUNT}"
        self.queue_endpoint = f"http://127.0.0.1:{queue_port}/{ACCOUNT}"
        self.connection_string = self._connection_string(blob_port)
        self.access = AzureAccess(connection_string=self.connection_string)

    def access_through(self, blob_port: int, queue_port: int | None = None) -> AzureAccess:
        """The same account behind proxies that listen on other ports."""
        return AzureAccess(connection_string=self._connection_string(blob_port, queue_port))

    def blobs(self) -> BlobServiceClient:
        """Microsoft's own client, to see and to do what the store cannot."""
        from azure.storage.blob import BlobServiceClient

        return BlobServiceClient.from_connection_string(self.connection_string)

    def queues(self) -> QueueServiceClient:
        """Microsoft's own client of the queues."""
        from azure.storage.queue import QueueServiceClient

        return QueueServiceClient.from_connection_string(self.connection_string)

    def container(self) -> str:
        """Create a container, and give its URI."""
        name = f"c-{uuid.uuid4().hex}"
        with self.blobs() as client:
            client.create_container(name).close()
        return f"abfss://{name}@{ACCOUNT}.dfs.core.windows.net"

    def container_client(self, uri: str) -> ContainerClient:
        """Microsoft's client of the container of a URI."""
        found = re.match(r"abfss://([^@]+)@", uri)
        assert found, uri
        return self.blobs().get_container_client(found.group(1))

    def queue(self) -> str:
        """Create a queue, and give its name."""
        name = f"q-{uuid.uuid4().hex}"
        with self.queues() as client:
            client.create_queue(name).close()
        return name

    def queue_client(self, name: str) -> QueueClient:
        """Microsoft's client of a queue."""
        return self.queues().get_queue_client(name)

    def _connection_string(self, blob_port: int, queue_port: int | None = None) -> str:
        return (
            f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};"
            f"BlobEndpoint=http://127.0.0.1:{blob_port}/{ACCOUNT};"
            f"QueueEndpoint=http://127.0.0.1:{queue_port or self.queue_port}/{ACCOUNT};"
        )


def _script() -> str:
    """Azurite's program; skips when it is not installed."""
    installed = Path(__file__).parents[3] / ".venv/azurite/node_modules/azurite/dist/src/azurite.js"
    script = Path(os.environ.get("AZURITE_JS") or installed)
    if not script.exists():
        pytest.skip(
            "azurite is not installed: `make setup` does it where npm is, or set AZURITE_JS"
        )
    return str(script)


@contextlib.contextmanager
def azurite_running(log: Path) -> Iterator[Azurite]:
    """Run azurite, which logs to a file."""
    script = _script()
    ports = [free_port() for _ in range(3)]
    switches = [
        *("--silent", "--inMemoryPersistence", "--disableTelemetry"),
        "--skipApiVersionCheck",  # the clients speak newer versions than it knows by name
    ]
    for service, port in zip(("blob", "queue", "table"), ports, strict=True):
        switches += [f"--{service}Host", "127.0.0.1", f"--{service}Port", str(port)]
    emulator = Azurite(ports[0], ports[1])
    server = Server(
        [program("node"), script, *switches],
        lambda: answers(emulator.blob_endpoint) and answers(emulator.queue_endpoint),
        log,
    )
    with running(server):
        yield emulator


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    """Azurite, started when a test first asks for it."""
    with azurite_running(tmp_path_factory.mktemp("azurite") / "azurite.log") as emulator:
        yield emulator
