"""Add what this package shows to Airflow's UI.

A tab *Stream* at each task instance of this package, and *Cloud Files* in the navigation: below
*Browse* the streams, below *Docs* the documentation of this version. Airflow loads plugins in each
of its processes, so this module imports next to nothing; the API server alone asks for the pages.
"""

from __future__ import annotations

from typing import Any

from airflow.plugins_manager import AirflowPlugin

PREFIX = "/cloudfiles"
"""Where the pages are, below the address of Airflow."""
_ICON = f"{PREFIX}/icon.svg"


class CloudFilesPlugin(AirflowPlugin):
    """The pages, found by the entry point `airflow.plugins`."""

    name = "cloudfiles"
    external_views = [  # noqa: RUF012 - Airflow declares it so
        {
            "name": "Stream",
            "href": f"{PREFIX}/tab/{{DAG_ID}}/{{RUN_ID}}/{{TASK_ID}}/{{MAP_INDEX}}",
            "url_route": "cloudfiles_stream",
            "destination": "task_instance",
            "icon": _ICON,
        },
        {
            "name": "Cloud Files",
            "href": f"{PREFIX}/streams",
            "url_route": "cloudfiles_streams",
            "destination": "nav",
            "category": "browse",
            "icon": _ICON,
        },
        {
            "name": "Cloud Files",
            "href": f"{PREFIX}/docs/index",
            "url_route": "cloudfiles_docs",
            "destination": "nav",
            "category": "docs",
            "icon": _ICON,
        },
    ]

    @property
    def fastapi_apps(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """The pages; made when the API server asks."""
        from airflow_cloudfiles.plugins.app import make_app  # noqa: PLC0415 - lazy: of one process

        return [{"app": make_app(), "url_prefix": PREFIX, "name": "cloudfiles"}]
