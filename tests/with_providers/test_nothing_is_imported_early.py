"""A provider that is installed is imported by what uses a connection of its type, not before."""

from __future__ import annotations

import subprocess
import sys

from tests.unit.test_architecture import AIRFLOW_FACING

PROBE = """
import importlib, sys

for module in sys.argv[1:]:
    importlib.import_module(module)
clouds = ("amazon", "microsoft", "google")  # of which Airflow itself loads `get_provider_info`
print(*(name for name in sys.modules if ".hooks" in name
      and name.startswith(tuple(f"airflow.providers.{each}." for each in clouds))))
if sys.argv[1:] == ["airflow_cloudfiles.hooks.access"]:
    from airflow.providers.common.compat.sdk import Connection
    from airflow_cloudfiles.hooks.access import access_of

    access_of(Connection(conn_id="a", conn_type="cloudfiles_aws"))
    assert "airflow.providers.amazon.aws.hooks.base_aws" not in sys.modules
    access_of(Connection(conn_id="a", conn_type="aws"))
    assert "airflow.providers.amazon.aws.hooks.base_aws" in sys.modules
"""


def _imported(*modules: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *modules],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return done.stdout.split()


def test_parsing_a_dag_imports_no_provider() -> None:
    assert _imported(*AIRFLOW_FACING) == []


def test_a_provider_is_imported_for_a_connection_of_its_own_type() -> None:
    assert _imported("airflow_cloudfiles.hooks.access") == []
