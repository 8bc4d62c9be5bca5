"""What does Airflow's provider manager ask for?

Plain data: Airflow reads it through the entry point `apache_airflow_provider` in every process it
starts, so this module imports nothing. The keys are those of Airflow's `provider_info.schema.json`.
"""

from __future__ import annotations

__all__ = ["get_provider_info"]


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
                    "airflow_cloudfiles.operators.promote",
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
                "python-modules": ["airflow_cloudfiles.hooks.cloud_files"],
            }
        ],
        "triggers": [
            {
                "integration-name": integration,
                "python-modules": [
                    "airflow_cloudfiles.triggers.cloud_files",
                    "airflow_cloudfiles.triggers.spark_connect",
                ],
            }
        ],
    }
