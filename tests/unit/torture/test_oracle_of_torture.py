"""The oracle of `make torture` finds what it is there for."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from torture import stream
from torture.oracle import Oracle
from torture.play import History
from torture.schedule import STORES, Landing, Schedule, generate

SOURCE = "/data/in"
STREAM = {"cloudFiles.schemaEvolutionMode": "addNewColumns"}


class World:
    """A stream that did all it should; a test then breaks it."""

    def __init__(self, **options: str) -> None:
        self.schedule = Schedule(1, "local", False, False, {**STREAM, **options}, ())
        self.history = History()
        self.rows: list[dict[str, Any]] = []
        self.bad: list[str] = []
        self.files: list[dict[str, Any]] = []
        for landing in (
            Landing("a.json", 0, rows=2, columns=("c0",)),
            Landing("b.json", 0, rows=1, broken=1),
            Landing("b.json", 1, rows=1),
            Landing("c.json", 0, rows=2),
        ):
            self.history.landed.append(stream.content(landing)[0])
        for each in self.history.landed:
            if (each.key, each.version) != ("b.json", 1):
                self.ingest(each)

    def ingest(self, landed: Any) -> None:
        self.rows += [{"id": i, "key": landed.key, **landed.columns} for i in landed.ids]
        self.rows += [{"id": None, "_rescued_data": f'{{"x": "{m}"}}'} for m in landed.marks]
        path = f"{SOURCE}/{landed.key}"
        self.files.append({"path": path, "status": "committed", "ingestion_state": "INGESTED"})

    def faults(self) -> list[str]:
        return Oracle(
            self.schedule,
            self.history,
            rows=self.rows,
            bad=self.bad,
            files=self.files,
            source=SOURCE,
        ).ask()


def test_nothing_is_wrong_where_everything_is_there() -> None:
    assert World().faults() == []
    again = World(**{"cloudFiles.allowOverwrites": "true"})
    again.ingest(again.history.landed[2])
    assert again.faults() == []
    apart = World()
    apart.bad = ["mark b.json#0.0. and why"]
    apart.rows = [row for row in apart.rows if row["id"]]
    assert apart.faults() == []


BREAKS = {
    "is 2 times in the table": lambda w: w.rows.append(copy.copy(w.rows[0])),
    "in part": lambda w: w.rows.pop(0),
    "the file is missing": lambda w: w.rows.__delitem__(slice(-2, None)),
    "never written": lambda w: w.rows.append({"id": "x"}),
    "c0 is": lambda w: w.rows[0].update(c0="y"),
    "more than one version": lambda w: w.ingest(w.history.landed[2]),
    "1 times rescued, 1 times as bad": lambda w: w.bad.append("mark b.json#0.0. and why"),
    "is not in the state": lambda w: w.files.pop(0),
    "times in the state": lambda w: w.files.append(dict(w.files[0])),
    "is not committed": lambda w: w.files[0].update(status="planned"),
    "never landed": lambda w: w.files.append({**w.files[0], "path": f"{SOURCE}/z.json"}),
    "is called missing": lambda w: w.files[0].update(ingestion_state="SKIPPED_MISSING"),
}


@pytest.mark.parametrize("fault", BREAKS)
def test_what_is_wrong_is_found(fault: str) -> None:
    world = World()
    BREAKS[fault](world)
    assert fault in "\n".join(world.faults())


def test_an_old_version_alone_is_not_enough_where_overwrites_are_read() -> None:
    faults = World(**{"cloudFiles.allowOverwrites": "true"}).faults()
    assert any("the newest version is missing" in each for each in faults)


def test_a_file_that_was_deleted_unread_is_not_called_ingested() -> None:
    world = World()
    world.history.deleted.add("c.json")
    world.rows = [row for row in world.rows if not str(row["id"]).startswith("c.json")]
    assert any("is called ingested" in each for each in world.faults())
    world.files[-1]["ingestion_state"] = "SKIPPED_MISSING"
    assert world.faults() == []


@pytest.mark.parametrize("store", STORES)
def test_a_schedule_follows_from_its_seed(store: str) -> None:
    made = [generate(seed, store) for seed in range(40)]
    assert made == [generate(seed, store) for seed in range(40)]
    landings = [each for schedule in made for wave in schedule.waves for each in wave.landings]
    assert any(each.is_deleted for each in landings)
    assert any(each.version for each in landings)
    assert any(each.broken for each in landings)
    assert any(each.columns for each in landings)
    assert any(schedule.is_notified for schedule in made) == (store != "local")
