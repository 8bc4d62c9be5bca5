"""How much of the package a small run executes, and how `make size` counts."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

MOST = 130
"""Modules of ours that a run of one file may execute: a reader has to find the way through them."""
MOST_FOR_A_NEW_COLUMN = 8
"""Modules that a new column may execute besides, with its retry."""


@pytest.fixture(scope="module")
def script(repository: Path) -> dict[str, Any]:
    return runpy.run_path(str(repository / "scripts" / "size.py"))


@pytest.mark.slow
def test_a_run_of_one_file_executes_few_modules(script: dict[str, Any]) -> None:
    executed, unknown, retry = script["walk"]()
    way = ("cli.py", "commands/tables/jobs.py", "engine/job/supervisor.py", "engine/job/run.py")
    assert {*way, "engine/batches/run.py", "engine/tables/delta/commit.py"} <= executed
    others = ("avro", "csv", "event_log", "excel", "iceberg", "inventory", "promotion", "queues")
    assert [each for each in executed if any(f"/{name}/" in each for name in others)] == []
    assert "engine/stream/schema_change.py" in unknown
    assert len((unknown | retry) - executed) <= MOST_FOR_A_NEW_COLUMN
    assert len(executed) <= MOST, sorted(executed)


def test_code_lines_are_those_with_code(script: dict[str, Any]) -> None:
    text = '"""What\nit is."""\n\nimport os  # why\n\n# A comment.\nTEXT = """a\nb"""\n'
    assert script["code_lines"](text) == 3


def test_what_names_a_thing_is_its_code(script: dict[str, Any], repository: Path) -> None:
    package = repository / "airflow_cloudfiles"
    modules = {
        package / "a.py": '"""Avro."""\n\nKIND = "avro"  # or SFTP\n',
        package / "b.py": '"""Avro."""\n',
        package / "formats" / "avro" / "c.py": 'KIND = "avro"\n',
        package / "azure.py": 'EVENTS = ("SftpCreate", "SftpCommit")\n',
        package / "connect.py": "import google.protobuf\nimport google.cloud\n",
        package / "messages.py": "from google.protobuf import message\n",
    }
    named = script["naming"](modules)
    assert named["a format (Avro), outside of its own"] == ["airflow_cloudfiles/a.py"]
    assert named["a store (SFTP), outside of its own"] == []
    assert named["Google, outside of its own"] == ["airflow_cloudfiles/connect.py"]
