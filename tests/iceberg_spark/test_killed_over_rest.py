"""Whole runs over a REST catalog of Iceberg's own: killed, and with lost answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_cloudfiles.engine.job.launch import LocalPython, LocalSpark
from airflow_cloudfiles.engine.job.spark_command import DriverStart
from tests.support.answering_proxy import CUT, AnsweringProxy, answering_proxy
from tests.support.driver import Driver
from tests.support.iceberg_spark import IcebergSpark, RestServer
from tests.support.iceberg_tables import LocalCatalog
from tests.support.landing import drop

pytestmark = pytest.mark.spark  # a JVM has the catalog

TOUR = (
    "before-sink-commit",
    "after-sink-commit",
    "after-schema-append",
    "after-sink-columns",
    "after-data-files",
    "after-sink-record",
)
"""Files of the first two waves have a column less."""


@pytest.fixture
def wire(iceberg: IcebergSpark, tmp_path: Path) -> Iterator[AnsweringProxy]:
    """A REST catalog, whose jars `iceberg` brings, and a proxy before it."""
    with (
        RestServer(tmp_path, tmp_path / "warehouse") as server,
        answering_proxy(server.uri) as proxy,
    ):
        yield proxy


@pytest.fixture
def lake(tmp_path: Path, wire: AnsweringProxy) -> Iterator[LocalCatalog]:
    """The catalog, which runs find by their environment, through the proxy."""
    found = LocalCatalog(tmp_path, wire.endpoint)
    yield found
    found.close()


def _driver(tmp_path: Path, target: str, how: DriverStart) -> Driver:
    folder = tmp_path / "stream"
    folder.mkdir()
    found = Driver(folder, **{"cloudFiles.maxFilesPerTrigger": "2"})
    found.target, found.how = target, how  # type: ignore[assignment]
    return found


def _arrive(driver: Driver, wave: int, **more: object) -> list[str]:
    ids = [f"{wave}-{number}" for number in range(6)]
    for number in range(3):
        mine = [{"id": each, **more} for each in ids[2 * number : 2 * number + 2]]
        drop(driver.source, f"w{wave}/f{number}.json", mine)
    return ids


def _ids(lake: LocalCatalog) -> list[str]:
    is_there = lake.catalog.table_exists(("db", "t"))
    return sorted(row["id"] for row in lake.rows("t")) if is_there else []


def _succeed(driver: Driver) -> None:
    while driver.run()[0] != 0:
        assert "UNKNOWN_FIELD_EXCEPTION" in driver.log, driver.log[-3000:]


def test_a_run_killed_between_any_two_steps_lands_every_row_once(
    tmp_path: Path, lake: LocalCatalog
) -> None:
    driver = _driver(tmp_path, lake.uri("t"), LocalPython())
    dropped: list[str] = []
    for wave, point in enumerate(TOUR):
        dropped += _arrive(driver, wave, **({"currency": "CHF"} if wave >= 2 else {}))
        driver.killed_at(point)
        found = _ids(lake)
        assert len(found) == len(set(found)), point
        assert set(found) <= set(dropped), point
    _succeed(driver)
    assert _ids(lake) == sorted(dropped)
    code, report = driver.run()
    assert (code, report and report["rows"]) == (0, 0)


def test_so_does_one_with_spark(tmp_path: Path, lake: LocalCatalog) -> None:
    driver = _driver(tmp_path, lake.uri("t"), LocalSpark(master="local[2]"))
    dropped = _arrive(driver, 0)
    driver.killed_at("after-sink-commit")
    dropped += _arrive(driver, 1)
    _succeed(driver)
    assert _ids(lake) == sorted(dropped)


def test_commits_whose_answers_are_lost_are_not_repeated(
    tmp_path: Path, lake: LocalCatalog, wire: AnsweringProxy
) -> None:
    driver = _driver(tmp_path, lake.uri("t"), LocalPython())
    dropped = _arrive(driver, 0)
    _succeed(driver)
    for wave, after in enumerate((0, 1), 1):
        dropped += _arrive(driver, wave)
        wire.answer("POST /v1/namespaces/db/tables/t$", CUT, b"", 1, after=after)
        code, report = driver.run()
        assert wire.pass_all() == 1
        assert code == 1, "it cannot know whether the catalog took the commit"
        assert report is not None
        assert report["error"]["is_retryable"]
        _succeed(driver)
        assert _ids(lake) == sorted(dropped), after
