"""Link a task instance to its stream.

Airflow asks for links on the worker when a task ends, and keeps them as XCom; its API server only
shows them. A link has no credentials: it names what is to be shown, and whoever follows it needs
rights of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlsplit

from airflow.providers.common.compat.sdk import BaseOperatorLink, conf

from airflow_cloudfiles.engine.storage.uri import normalize_uri
from airflow_cloudfiles.engine.storage.vendors import BY_SCHEME, Vendor
from airflow_cloudfiles.hooks.cloud_files import CloudFilesHook
from airflow_cloudfiles.hooks.task import map_index_of, run_id_of

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage.access import Access

TAB: Final = "cloudfiles_stream"
"""The tab of a task instance, as the plugin calls it."""
PAGE: Final = "/cloudfiles/stream"
"""The page of a stream, which that tab has, too, without links to other streams."""


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
        if _vendor_of(location) is None:
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
    vendor = _vendor_of(location)
    if vendor is None or not parts.netloc:
        return ""
    leaf = vendor.load("access", needed_for=location)
    return str(leaf.console_address(parts.netloc, parts.path.strip("/"), access))


def _vendor_of(location: str) -> Vendor | None:
    """Find whose page shows a location; `None` where nobody's does."""
    vendor = BY_SCHEME.get(location.partition(":")[0])
    return vendor if vendor is not None and vendor.has_console else None


def _in_airflow(path: str) -> str:
    """Build the address of a page of this Airflow; one on its own host without `[api] base_url`."""
    return str(conf.get("api", "base_url", fallback="") or "").rstrip("/") + path


def _part(text: str) -> str:
    return quote(text, safe="")
