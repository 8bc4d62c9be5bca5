"""What tests share: an Airflow home of their own, and folders for what is kept. No data.

Fixtures of one package live beside its tests; this file stays under 150 lines.
"""

from __future__ import annotations

import itertools
import logging
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.support import laws
from tests.support.ending import Ending
from tests.support.markers import Markers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

pytest_plugins = ["tests.support.emulators.plugin", "tests.support.shared_spark"]

# Airflow reads its configuration when it is first imported, and creates its home: not the user's.
_AIRFLOW_HOME = tempfile.mkdtemp(prefix="cloudfiles-tests-airflow-")
os.environ["AIRFLOW_HOME"] = _AIRFLOW_HOME
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"

# Indexes of seen files: in no test the user's.
_CACHE = os.environ["CLOUDFILES_CACHE_DIR"] = tempfile.mkdtemp(prefix="cloudfiles-tests-cache-")
_NUMBERS = itertools.count()

# Classes of JVMs: for all tests, and for the next time, since the first two runs make them.
os.environ.setdefault("CLOUDFILES_JVM_DIR", str(Path(sys.prefix) / "jvm"))

# Workers must be this Python: Spark's own default is whatever `python3` the PATH has.
os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable

# Py4J logs the end of each connection, the last one after pytest has closed its streams. Why one
# broke that a query still needs, it tells as information, and Java sees an end of file only.
logging.getLogger("py4j").setLevel(logging.WARNING)
logging.getLogger("py4j.clientserver").setLevel(logging.INFO)
logging.getLogger("py4j.clientserver").addFilter(
    lambda record: record.levelno >= logging.WARNING or record.exc_info is not None
)

# How long an example takes says nothing on a busy machine.
settings.register_profile("any_speed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any_speed")


def pytest_configure(config: pytest.Config) -> None:
    """Give markers, enforce them, and end what hangs at the end."""
    config.pluginmanager.register(Markers(config), "markers")
    config.pluginmanager.register(Ending(), "ending")


def pytest_report_header() -> str:
    """Say how to try the same examples again."""
    return "examples: all" if laws.ALL else f"examples: some, again by EXAMPLES_SEED={laws.SEED}"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Have `caplog` show messages as they are.

    It is attached to each logger that does not propagate. Those that PySpark makes for errors in
    queries have any handler write JSON from then on, in all tests that follow.
    """
    logs = item.config.pluginmanager.get_plugin("logging-plugin")
    for handler in (logs.caplog_handler, logs.report_handler):
        handler.setFormatter(logs.formatter)


def pytest_unconfigure() -> None:
    """Remove what Airflow and the streams of the tests wrote beside their folders."""
    for folder in (_AIRFLOW_HOME, _CACHE):
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(autouse=True)
def _own_cache(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep each test's indexes of seen files apart.

    Tests of the shared Spark session keep the cache of the run: its workers have the environment
    that the session was started with.
    """
    if "spark" not in request.fixturenames:
        # Made by whoever needs it. To number a folder, pytest looks at those of all tests before.
        monkeypatch.setenv("CLOUDFILES_CACHE_DIR", f"{_CACHE}/{next(_NUMBERS)}")


@pytest.fixture(autouse=True)
def no_query_is_left_running(request: pytest.FixtureRequest) -> Iterator[None]:
    """Stop the streaming queries that a test of the shared session started."""
    yield
    if "spark" in request.fixturenames:
        session: SparkSession = request.getfixturevalue("spark")
        for query in session.streams.active:
            query.stop()


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the source tree."""
    return Path(__file__).parent.parent
