"""Declare the types of connections that this package brings, and test them.

A hook for each cloud, so that Airflow's command line and forms know the type without the cloud's
own provider (docs/decisions/0103-connection-types.md). Tasks use `CloudFilesHook`, which takes a
connection of any type. The forms are files in `connections`: Airflow shows them without importing
this module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from airflow_cloudfiles.engine.errors import CloudFilesError, OptionError
from airflow_cloudfiles.engine.storage import normalize_uri, open_store
from airflow_cloudfiles.engine.storage.small_objects import SCRATCH, require_conditional_put
from airflow_cloudfiles.hooks.access import AWS, AZURE, GCP, SFTP
from airflow_cloudfiles.hooks.cloud_files import CloudFilesHook
from airflow_cloudfiles.hooks.extras import TEST_LOCATION

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage import ObjectStore


class CloudConnectionHook(CloudFilesHook):
    """Base of the hooks of this package's types of connections; use a subclass."""

    conn_type: ClassVar[str]

    example: ClassVar[str]
    """A location in the cloud."""

    def test_connection(self) -> tuple[bool, str]:
        """Try what a stream needs at the location that the connection names for it.

        Lists it, and proves on a new object, which it removes, that of two writers the first one
        wins: the state of a stream rests on that. Data is neither read nor changed.

        Returns:
            Whether it works, and what does or what to do.
        """
        try:
            access = self.access
            store = open_store(self._test_location(), access)
            return True, self._try(store)
        except CloudFilesError as failure:
            return False, failure.message
        except OSError as failure:
            return False, str(failure)

    def _try(self, store: ObjectStore) -> str:
        """Try a location, and say what it is good for."""
        next(iter(store.list(ordered=False)), None)
        require_conditional_put(store, folder=SCRATCH)
        return (
            f"{store.uri} can be listed, written, read and deleted in, and refuses a second writer "
            "of one object: source, state and table of a stream can be there."
        )

    def _test_location(self) -> str:
        """Read the location that the connection names for its test.

        Raises:
            OptionError: It names none, or one that is not in its cloud.
        """
        given = self._connection.extra_dejson.get(TEST_LOCATION) if self._connection else None
        what = f"{TEST_LOCATION} of connection {self.conn_id!r}"
        if not given:
            raise OptionError(
                f"{what} is empty. Give a folder for the test, such as {self.example}: a state "
                "would need the same rights there."
            )
        location = str(given)
        if normalize_uri(location).partition(":")[0] != self.example.partition(":")[0]:
            raise OptionError(
                f"{what} is {location!r}, which a connection of type {self.conn_type} does not "
                f"reach. Give a location such as {self.example}."
            )
        return location


class CloudFilesAwsHook(CloudConnectionHook):
    """Type `cloudfiles_aws`: Amazon S3 and SQS, and servers that speak their protocols."""

    conn_type = AWS
    default_conn_name = "cloudfiles_aws_default"
    hook_name = "Cloud Files: Amazon S3"
    example = "s3://acme-lake/_state"


class CloudFilesAzureHook(CloudConnectionHook):
    """Type `cloudfiles_azure`: Azure Blob Storage, ADLS Gen2 and storage queues."""

    conn_type = AZURE
    default_conn_name = "cloudfiles_azure_default"
    hook_name = "Cloud Files: Azure Storage"
    example = "abfss://lake@acme.dfs.core.windows.net/_state"


class CloudFilesGcpHook(CloudConnectionHook):
    """Type `cloudfiles_gcp`: Google Cloud Storage and Pub/Sub."""

    conn_type = GCP
    default_conn_name = "cloudfiles_gcp_default"
    hook_name = "Cloud Files: Google Cloud Storage"
    example = "gs://acme-lake/_state"


class CloudFilesSftpHook(CloudConnectionHook):
    """Type `cloudfiles_sftp`: SFTP servers, as sources."""

    conn_type = SFTP
    default_conn_name = "cloudfiles_sftp_default"
    hook_name = "Cloud Files: SFTP server"
    example = "sftp://sftp.acme.com/inbox"

    def _try(self, store: ObjectStore) -> str:
        """List the folder; nothing is written to a source."""
        if not store.is_folder():
            raise OptionError(f"{store.uri} is no folder that is there. Correct the location.")
        next(iter(store.list()), None)
        return f"{store.uri} can be listed: it can be the source of a stream."
