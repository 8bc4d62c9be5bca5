"""Say whose clouds and servers there are, and load what is theirs.

A row for each vendor, whose modules lie in a folder of their own (`clouds`): how locations are
written, what its queue is named by, and what its modules call their classes. The clients of the
clouds are extras: a module that needs one is imported only when a location or an option asks for
it.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, Final

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.messages import install

_CLOUDS: Final = "airflow_cloudfiles.engine.clouds"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueService:
    """How a vendor's queue of notifications is named, and what one request of it takes.

    Attributes:
        option: That names the queue.
        field: The same in `DiscoveryOptions`.
        what: What the option is to hold.
        is_enough: Whether that alone says where the queue is, whatever the source.
        received: Messages that one request receives.
        deleted: Messages that one request deletes.
        hides: Whether a request hides what was received.
        sizes: How often a run asks for the size of the queue.
        dead_letter: What a topic for messages that nobody could handle is; empty for none.
    """

    option: str
    field: str
    what: str
    is_enough: bool = True
    received: int
    deleted: int
    hides: bool = False
    sizes: int = 2
    dead_letter: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vendor:
    """Whose cloud or servers it is.

    Attributes:
        name: Of its folder in `clouds`, of the extra with its clients, of its access in the
            environment of a driver.
        title: What people call its store.
        cloud: What people call all that it has; empty for servers of anybody.
        scheme: That its locations are written with.
        aliases: Other schemes of the same.
        bucket: What stands between `//` and the next slash; empty where that is a server.
        example: How the whole is written.
        access: The class of its access.
        store: The class of its store.
        is_source_only: Whether its store has no write that one of several wins.
        hadoop: Schemes that Hadoop's file systems of the same store may be registered for.
        page: Objects of one page of a listing; 0 where requests have no price.
        queue: Of notifications; `None` for a vendor without.
        services: The class that sets notifications up.
        place: What a location does not say of where they are: fields of `CloudScope`, and what
            each of them is.
        lists_all: Whether it can list them for all locations.
        manifest: A field of its inventory manifests that no other vendor's have; empty where there
            are none.
        has_console: Whether people can look at its files on a page of the vendor.
        clients: The distributions of its clients, by which is seen whether the extra is there.
    """

    name: str
    title: str
    cloud: str = ""
    scheme: str
    aliases: tuple[str, ...] = ()
    bucket: str = ""
    example: str
    access: str
    store: str
    is_source_only: bool = False
    hadoop: tuple[str, ...] = ()
    page: int = 0
    queue: QueueService | None = None
    services: str = ""
    place: tuple[tuple[str, str], ...] = ()
    lists_all: bool = False
    manifest: str = ""
    has_console: bool = False
    clients: tuple[str, ...]

    def load(self, module: str, *, needed_for: str) -> Any:
        """Import a module of the vendor.

        Args:
            module: Its name in the folder.
            needed_for: See `import_with_extra`.

        Raises:
            OptionError: The extra is not installed.
        """
        return import_with_extra(
            f"{_CLOUDS}.{self.name}.{module}", self.name, needed_for=needed_for
        )

    @property
    def is_server(self) -> bool:
        """Whether its locations name a server with folders, not a bucket with keys."""
        return not self.bucket

    def access_class(self) -> Any:
        """Give the class of its access, which needs no extra."""
        return getattr(self._addresses(), self.access)

    def normalize(self, rest: str) -> str:
        """Write a location on a server in its canonical form.

        Args:
            rest: What follows the scheme and its colon.

        Raises:
            OptionError: It is no such location.
        """
        return str(self._addresses().normalize(rest))

    def _addresses(self) -> Any:
        """Import the module with its access, which needs no extra."""
        return importlib.import_module(f"{_CLOUDS}.{self.name}.access")


VENDORS: Final = (
    Vendor(
        name="aws",
        title="S3",
        cloud="AWS",
        scheme="s3",
        aliases=("s3a", "s3n"),
        bucket=r"[A-Za-z0-9._-]+",
        example="s3://bucket/path",
        access="AwsAccess",
        store="S3Store",
        hadoop=("s3", "s3a"),
        page=1000,
        queue=QueueService(
            option="cloudFiles.queueUrl",
            field="queue_url",
            what="the URL of the SQS queue",
            received=10,
            deleted=10,
        ),
        services="AwsServices",
        lists_all=True,
        manifest="sourceBucket",
        has_console=True,
        clients=("boto3",),
    ),
    Vendor(
        name="azure",
        title="Azure",
        cloud="Azure",
        scheme="abfss",
        aliases=("abfs", "wasbs", "wasb"),
        bucket=r"[^@/\s]+@[a-z0-9-]+(\.[a-z0-9-]+)*\.dfs\.[a-z0-9.-]+",
        example="abfss://container@account.dfs.core.windows.net/path",
        access="AzureAccess",
        store="AzureStore",
        hadoop=("abfss",),
        page=5000,
        queue=QueueService(
            option="cloudFiles.queueName",
            field="queue_name",
            what="the name of the storage queue",
            is_enough=False,
            received=32,
            deleted=1,
        ),
        services="AzureServices",
        place=(
            ("subscription_id", "subscription of the storage account"),
            ("resource_group", "resource group of the storage account"),
        ),
        manifest="ruleDefinition",
        has_console=True,
        clients=("azure-storage-blob", "azure-storage-queue", "azure-identity"),
    ),
    Vendor(
        name="gcp",
        title="Cloud Storage",
        cloud="Google Cloud",
        scheme="gs",
        bucket=r"[a-z0-9._:-]+",
        example="gs://bucket/path",
        access="GcpAccess",
        store="GcsStore",
        hadoop=("gs",),
        page=1000,
        queue=QueueService(
            option="cloudFiles.subscription",
            field="subscription",
            what="the Pub/Sub subscription",
            received=1000,
            deleted=1000,
            hides=True,
            sizes=0,
            dead_letter="projects/PROJECT/topics/TOPIC for messages that could not be handled; the "
            "service account of Pub/Sub publishes there, and subscribes to the subscription",
        ),
        services="GcpServices",
        place=(("project_id", "project of topic and subscription"),),
        lists_all=True,
        manifest="report_config",
        has_console=True,
        clients=("google-cloud-storage", "google-cloud-pubsub"),
    ),
    Vendor(
        name="sftp",
        title="SFTP",
        scheme="sftp",
        example="sftp://host/path",
        access="SftpAccess",
        store="SftpStore",
        is_source_only=True,
        clients=("asyncssh",),
    ),
)
BY_SCHEME: Final = {each.scheme: each for each in VENDORS}
BY_NAME: Final = {each.name: each for each in VENDORS}


def import_with_extra(module: str, extra: str, *, needed_for: str) -> Any:
    """Import a module that needs an extra of this package.

    Args:
        module: Its full name.
        extra: That brings what it imports.
        needed_for: What asked for it, for the message: a location, or an option with its value.

    Raises:
        OptionError: The extra is not installed; names the command that installs it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as failure:
        if (failure.name or "").startswith("airflow_cloudfiles"):
            raise
        raise OptionError(
            f"{needed_for} needs the package {failure.name}, which is not installed here. "
            f"{install(extra)}"
        ) from failure
