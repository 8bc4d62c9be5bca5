"""The markers of tests: given where they follow from the test, and enforced where they are missing.

`make quick` selects by markers. So a test that starts what its markers do not name fails, with
every selection and wherever it starts it: an emulator, a JVM, or the import of Airflow.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.emulators import processes

if TYPE_CHECKING:
    from collections.abc import Iterator

TESTS = Path(__file__).parents[1]

FOLDERS = {
    "emulated": "emulator",
    "spark": "spark",
    "connect": "spark",
    "provider": "airflow",
    "with_providers": "airflow",
    "cluster": "cluster",
    "other_servers": "emulator",
}
"""Folders whose tests all have one marker."""

FIXTURES = {
    "spark": {"spark"},
    "emulator": {
        *("aws", "aws_serving", "seaweed", "microburst", "azurite", "gcs", "gcs_events"),
        *("gcs_xml", "pubsub", "pubsub_google", "pubsub_here", "pubsubs"),
        *("moto", "s3mock", "versity", "ceph", "swift", "gofakes3", "elasticmq"),
    },
}
"""A test that asks for one of these fixtures has the marker, whether it says so or not."""

LONGEST = (
    "provider/test_real_airflow.py",
    "connect/test_runs_over_connect.py",
    "recovery/test_killed_between_steps.py",
    "connect/test_plain_pyspark_over_connect.py",
    "connect/test_state_in_a_store.py",
    "spark/test_start_of_spark.py",
    "spark/test_plain_pyspark.py",
    "connect/test_deferral.py",
    "recovery/test_table_stream_killed.py",
    "cluster/test_machines_that_share_no_disk.py",
    "cluster/test_submit_to_a_cluster.py",
    "connect/test_declarative_pipelines.py",
    "docs/test_docs.py",
    "spark/test_bad_input.py",
    "recovery/test_iceberg_killed.py",
    "recovery/test_killed_merge.py",
    "provider/test_operators.py",
    "spark/test_promotion_spark.py",
    "spark/test_every_format_spark.py",
)
"""Files of minutes, the longest first: begun last, one would keep one worker busy alone."""

SLOW_FILES = (
    "unit/delta/read/test_log.py",
    "unit/delta/stream/test_tables_of_others.py",
    "unit/delta/test_delta_variant_sink.py",
    "unit/delta/test_merge.py",
    "unit/delta/test_merge_tables.py",
    "unit/delta/test_optimize.py",
    "unit/delta/test_optimize_mapped.py",
    "unit/delta/test_optimize_partitions.py",
    "unit/delta/test_vacuum.py",
    "unit/delta/write/test_column_mapping.py",
    "unit/delta/write/test_enforcement.py",
    "unit/delta/write/test_evolution.py",
    "unit/delta/write/test_partitions.py",
    "unit/discovery/test_incremental.py",
    "unit/discovery/test_ranges.py",
    "unit/formats/xml/test_xml_columns.py",
    "unit/iceberg/test_iceberg_commit.py",
    "unit/iceberg/test_iceberg_schema.py",
    "unit/intake/test_file_states.py",
    "unit/intake/test_upkeep.py",
    "unit/job/test_cleaning.py",
    "unit/job/test_compaction_by_runs.py",
    "unit/job/test_file_operations.py",
    "unit/job/test_file_operations_by_content.py",
    "unit/spark/test_forked_python.py",
    "unit/job/test_lost_batches.py",
    "unit/job/test_nothing_new.py",
    "unit/job/test_replay.py",
    "unit/promotion/test_promotion.py",
    "unit/stream/test_every_format.py",
    "unit/stream/test_failing_try.py",
    "unit/stream/test_given_schema.py",
    "unit/stream/test_refused_files.py",
    "unit/stream/test_schema_change.py",
    "unit/transfer/test_archive.py",
    "unit/transfer/test_move.py",
    "unit/transfer/test_relocate.py",
)
"""Files of many runs, commits or processes: more than half of what `make quick` would take."""

_JAVA = """#!/bin/sh
# Stands in for Java in tests that are not marked `spark`: it has a version, and starts nothing.
case "$*" in *-version) echo 'openjdk version "17.0.0"' >&2; exit 0 ;; esac
echo "$PYTEST_CURRENT_TEST" >> {started}
echo "A test that is not marked spark starts a JVM: $PYTEST_CURRENT_TEST" >&2
exit 97
"""


class Markers:
    """A pytest plugin; `tests/conftest.py` registers it."""

    def __init__(self, config: pytest.Config) -> None:
        self._deselected = _deselected(str(config.option.markexpr or ""))
        self._folder = Path(tempfile.mkdtemp(prefix="cloudfiles-tests-java-"))
        self._started = self._folder / "started"
        java = self._folder / "bin" / "java"
        java.parent.mkdir()
        java.write_text(_JAVA.format(started=self._started))
        java.chmod(0o755)

    def pytest_unconfigure(self) -> None:
        """Remove the Java that is none."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Do not import tests of which none is selected: that takes longer than `make quick`."""
        if collection_path.parent != TESTS:
            return None
        return True if FOLDERS.get(collection_path.name) in self._deselected else None

    @pytest.hookimpl(tryfirst=True)  # before `-m` chooses
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Add the markers that follow from a test's folder and fixtures."""
        for item in items:
            wanted = {
                marker
                for marker, fixtures in FIXTURES.items()
                if not fixtures.isdisjoint(getattr(item, "fixturenames", ()))
            }
            if item.path.is_relative_to(TESTS):
                below = item.path.relative_to(TESTS)
                wanted.add(FOLDERS.get(below.parts[0], ""))
                wanted.add("slow" if below.as_posix() in SLOW_FILES else "")
            for marker in sorted(wanted - {""}):
                item.add_marker(marker)
        items.sort(key=lambda item: _rank(item.path))  # stable: the order within files stays

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Hide Java from a test that has none, and let it start no emulator."""
        has = {marker.name for marker in item.iter_markers()}
        processes.refuse_for = None if "emulator" in has else item.nodeid
        kept = {name: os.environ.get(name) for name in ("JAVA_HOME", "PATH")}
        if has.isdisjoint({"spark", "emulator", "cluster"}):
            os.environ["JAVA_HOME"] = str(self._folder)
            os.environ["PATH"] = f"{self._folder / 'bin'}{os.pathsep}{kept['PATH']}"
        try:
            return (yield)
        finally:
            processes.refuse_for = None
            for name, value in kept.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Fail a test that started a JVM or imported Airflow without the marker."""
        had_airflow = "airflow" in sys.modules
        result = yield
        if self._started.exists():
            self._started.unlink()
            pytest.fail(f"{item.nodeid} starts a JVM: mark it `spark`")
        if not had_airflow and "airflow" in sys.modules and not item.get_closest_marker("airflow"):
            pytest.fail(f"{item.nodeid} imports Airflow: mark it `airflow`")
        return result


def _rank(path: Path) -> int:
    """The place of a file among the longest; behind them for all others."""
    name = path.relative_to(TESTS).as_posix() if path.is_relative_to(TESTS) else ""
    return LONGEST.index(name) if name in LONGEST else len(LONGEST)


def _deselected(expression: str) -> set[str]:
    """Markers that a selection `not a and not b` leaves out."""
    if re.search(r"\bor\b|[()]", expression):
        return set()
    return set(re.findall(r"\bnot (\w+)", expression))
