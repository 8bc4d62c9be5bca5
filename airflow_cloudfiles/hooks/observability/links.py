"""Link a task instance to its stream.

Airflow asks for links on the worker when a task ends, and keeps them as XCom; its API server only
shows them. A link has no credentials: it names what is to be shown, and whoever follows it needs
rights of their own.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode, urlsplit

from airflow.providers.common.compat.sdk import BaseOperatorLink, conf

from airflow_cloudfiles.engine.storage.access import AwsAccess, AzureAccess, GcpAccess
from airflow_cloudfiles.engine.storage.uri import normalize_uri
from airflow_cloudfiles.hooks.cloud_files import CloudFilesHook
from airflow_cloudfiles.hooks.task import map_index_of, run_id_of

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage.access import Access

TAB: Final = "cloudfiles_stream"
"""The tab of a task instance, as the plugin calls it."""
PAGE: Final = "/cloudfiles/stream"
"""The page in that tab."""
_AWS_CONSOLES: Final = {"cn-": "amazonaws.cn", "us-gov-": "amazonaws-us-gov.com"}
"""Where a region's console is, if it is not where the others are."""
_AZURE_PORTALS: Final = {
    ".dfs.core.windows.net": "portal.azure.com",
    ".dfs.core.usgovcloudapi.net": "portal.azure.us",
    ".dfs.core.chinacloudapi.cn": "portal.azure.cn",
}
"""The portal of each of Azure's clouds, by the end of its accounts' hosts."""
_OTHER_S3: Final = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3")
_OTHER_GCS: Final = "STORAGE_EMULATOR_HOST"


class StreamLink(BaseOperatorLink):
    """The tab *Stream* of the task instance."""

    name = "Stream"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:  # noqa: ARG002 - Airflow's signature
        """Give the address of the tab in Airflow's UI."""
        task = f"/dags/{_part(ti_key.dag_id)}/runs/{_part(ti_key.run_id)}"
        task += f"/tasks/{_part(ti_key.task_id)}"
        index = map_index_of(ti_key)
        if index >= 0:
            task += f"/mapped/{index}"
        return _in_airflow(f"{task}/plugin/{TAB}")


class ReportLink(BaseOperatorLink):
    """The report of this try, among the newest runs of the stream."""

    name = "Report"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:  # noqa: ARG002 - Airflow's signature
        """Give the address of the stream's page, at the run."""
        parts = (ti_key.dag_id, ti_key.run_id, ti_key.task_id, str(map_index_of(ti_key)))
        page = "/".join((PAGE, *map(_part, parts)))
        return _in_airflow(f"{page}#{anchor(run_id_of({'ti': ti_key}))}")


class TableLink(BaseOperatorLink):
    """The table in the console of its cloud; nothing where there is no such page."""

    name = "Table"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:  # noqa: ARG002 - Airflow's signature
        """Give the address of the table's folder in the console of its cloud, or nothing."""
        target = getattr(operator, "target", None)
        if not isinstance(target, str) or "://" not in target:
            return ""
        location = normalize_uri(target)  # `wasbs`, `s3a` and others are the same places
        if urlsplit(location).scheme not in _CONSOLES:
            return ""
        return console_of(location, CloudFilesHook(operator.conn_id).access)


def anchor(run_id: str) -> str:
    """Name the place of a run on the page of its stream; a run's id has no other characters."""
    return f"run-{run_id}"


def console_of(location: str, access: Access | None) -> str:
    """Find a folder in the console of its cloud.

    Args:
        location: Its URI.
        access: How its cloud is reached.

    Returns:
        An address; empty for local folders, for catalogs, for servers that are not the cloud's own,
        and for Azure where `access` does not say the account's subscription and resource group, by
        which its portal names it.
    """
    parts = urlsplit(location)
    console = _CONSOLES.get(parts.scheme)
    if console is None or not parts.netloc:
        return ""
    return console(parts.netloc, parts.path.strip("/"), access)


def _s3(bucket: str, folder: str, access: Access | None) -> str:
    given = access if isinstance(access, AwsAccess) else AwsAccess()
    if "@" in bucket or given.endpoint_url("s3") or any(os.environ.get(name) for name in _OTHER_S3):
        return ""
    region = given.region or ""
    others = (host for start, host in _AWS_CONSOLES.items() if region.startswith(start))
    asked = {"region": region} if region else {}
    asked |= {"prefix": f"{folder}/"} if folder else {}
    host = next(others, "aws.amazon.com")
    return f"https://console.{host}/s3/buckets/{_part(bucket)}?{urlencode(asked)}".rstrip("?")


def _gcs(bucket: str, folder: str, access: Access | None) -> str:
    given = access if isinstance(access, GcpAccess) else GcpAccess()
    if "@" in bucket or given.storage_endpoint or os.environ.get(_OTHER_GCS):
        return ""
    path = "/".join(map(_part, filter(None, (bucket, *folder.split("/")))))
    asked = f"?{urlencode({'project': given.project})}" if given.project else ""
    return f"https://console.cloud.google.com/storage/browser/{path}{asked}"


def _azure(place: str, folder: str, access: Access | None) -> str:  # noqa: ARG001 - of a container
    container, _, host = place.partition("@")
    account, _, _ = host.partition(".")
    portal = _AZURE_PORTALS.get(host.removeprefix(account))
    given = access if isinstance(access, AzureAccess) else AzureAccess()
    subscription, group = given.subscription_id, given.resource_group
    if portal is None or given.blob_endpoint or not subscription or not group:
        return ""
    named = f"/subscriptions/{subscription}/resourceGroups/{group}"
    named += f"/providers/Microsoft.Storage/storageAccounts/{account}"
    page = "Microsoft_Azure_Storage/ContainerMenuBlade/~/overview/storageAccountId"
    return f"https://{portal}/#view/{page}/{_part(named)}/path/{_part(container)}"


_CONSOLES: Final = {"s3": _s3, "gs": _gcs, "abfss": _azure}


def _in_airflow(path: str) -> str:
    """Build the address of a page of this Airflow; one on its own host without `[api] base_url`."""
    return str(conf.get("api", "base_url", fallback="") or "").rstrip("/") + path


def _part(text: str) -> str:
    return quote(text, safe="")
