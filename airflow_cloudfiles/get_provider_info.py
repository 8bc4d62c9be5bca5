"""Tell Airflow's provider manager what this package brings.

Plain data: Airflow reads it through the entry point `apache_airflow_provider` in every process it
starts, so this module imports nothing that Python has not imported before. The keys are those of
Airflow's `provider_info.schema.json`.

Types of connections have a file each, in `hooks/connections`. Their forms (`conn-fields`) are shown
by Airflow 3.2 and later; 3.1 shows the same fields as JSON in *Extra*. What is secret is a password
field, and has a name that Airflow 3.3 masks.
"""

from __future__ import annotations

import json
from pathlib import Path

__all__ = ["get_provider_info"]

_CONNECTIONS = Path(__file__).parent / "hooks" / "connections"


def get_provider_info() -> dict[str, object]:
    """Describe the package to Airflow.

    Returns:
        What `airflow providers get` shows. `package-name` is the name of the distribution: Airflow
        refuses a provider where the two differ.
    """
    integration = "Cloud Files"
    return {
        "package-name": "airflow-provider-cloudfiles",
        "name": integration,
        "description": "An open Auto Loader: files landing in storage go into tables, scheduled by "
        "Airflow, run by PySpark.",
        "versions": ["0.1.0"],
        "integrations": [{"integration-name": integration, "tags": ["software"]}],
        "operators": [
            {
                "integration-name": integration,
                "python-modules": [
                    "airflow_cloudfiles.operators.cloud_files",
                    "airflow_cloudfiles.operators.clean",
                    "airflow_cloudfiles.operators.files",
                    "airflow_cloudfiles.operators.promote",
                    "airflow_cloudfiles.operators.schema_change",
                    "airflow_cloudfiles.operators.table",
                ],
            }
        ],
        "sensors": [
            {
                "integration-name": integration,
                "python-modules": ["airflow_cloudfiles.sensors.cloud_files"],
            }
        ],
        "hooks": [
            {
                "integration-name": integration,
                "python-modules": [
                    "airflow_cloudfiles.hooks.cloud_files",
                    "airflow_cloudfiles.hooks.clouds",
                ],
            }
        ],
        "triggers": [
            {
                "integration-name": integration,
                "python-modules": [
                    "airflow_cloudfiles.triggers.cloud_files",
                    "airflow_cloudfiles.triggers.file_events",
                    "airflow_cloudfiles.triggers.spark_connect",
                ],
            }
        ],
        "task-decorators": [
            {
                "class-name": "airflow_cloudfiles.decorators.cloud_files.cloud_files_task",
                "name": "cloud_files",
            }
        ],
        "extra-links": [
            f"airflow_cloudfiles.hooks.observability.links.{name}"
            for name in ("StreamLink", "ReportLink", "TableLink")
        ],
        "connection-types": [
            json.loads(path.read_text(encoding="utf-8"))
            for path in sorted(_CONNECTIONS.glob("*.json"))
        ],
    }
