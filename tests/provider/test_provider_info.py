"""Airflow sees this package as a provider."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.airflow, pytest.mark.slow]


def test_airflow_knows_the_provider(tmp_path: Path) -> None:
    told = subprocess.run(
        [sys.executable, "-m", "airflow", "providers", "get", "airflow-provider-cloudfiles"],
        env={**os.environ, "AIRFLOW_HOME": str(tmp_path), "AIRFLOW__CORE__UNIT_TEST_MODE": "False"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert told.returncode == 0, told.stderr[-2000:]
    assert "airflow-provider-cloudfiles" in told.stdout
