"""The story the demo tells: files arrive, a column appears, odd records come; nothing is lost.

1. Half a year of flights lands. The sensor finds the files, their schema is inferred, the ingest
   task lands them.
2. The other half arrives with a new column. The ingest task fails with `UnknownFieldException`;
   Airflow retries it by itself; the retry succeeds.
3. A record with a wrong type and one with odd casing arrive and end up in `_rescued_data`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING

from demo.flights import Flight, Flights, drop_file
from demo.narrator import say, show, title
from demo.table import Landed
from demo.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from demo.airflow_home import AirflowHome

DAG_ID = "example_ingest_flights"
MID_YEAR = date(2013, 7, 1)
LAST_DAY = date(2013, 12, 31)
ACT_SECONDS = 600


@dataclass(slots=True)
class Story:
    """One telling of the story.

    Attributes:
        airflow: A running Airflow whose DAG works below `root`.
        root: The folder of landing zone, state and table.
        flights: What is dropped.
    """

    airflow: AirflowHome
    root: Path
    flights: Flights
    dropped_rows: int = 0
    dropped_distance: int = 0
    columns_before: dict[str, str] = field(default_factory=dict)

    @property
    def landed(self) -> Landed:
        """What the stream has made of it so far."""
        return Landed(self.root)

    @property
    def landing(self) -> Path:
        """Where files are dropped."""
        return self.root / "landing"

    def play(self) -> Watch:
        """Play all acts; returns what the tasks did."""
        api = self.airflow.api
        watch = Watch(self.airflow, DAG_ID)
        title("1. The first files arrive")
        self._drop_days(before=MID_YEAR)
        self.airflow.wait(lambda: api.has_dag(DAG_ID), ACT_SECONDS, "the example DAG")
        say(f"unpausing the DAG {DAG_ID}")
        api.pause(DAG_ID, paused=False)
        self._wait_until_landed(watch)
        self.columns_before = self.landed.columns()

        title("2. Files with a new column arrive: airline")
        self._drop_days(since=MID_YEAR, with_airline=True)
        self._wait_until_landed(watch)

        title("3. A record with a wrong type and one with odd casing arrive")
        self._drop_odd_records()
        self._wait_until_landed(watch)
        return watch

    def _drop_days(
        self, *, since: date = date.min, before: date = date.max, with_airline: bool = False
    ) -> None:
        """Drop the files of some days."""
        days = [day for day in self.flights.days if since <= day < before]
        rows = self.flights.drop(self.landing, days, with_airline=with_airline)
        self._count(row for day in days for row in self.flights.days[day])
        say(f"dropped {len(days)} files with {rows:,} flights into {self.landing}")

    def _drop_odd_records(self) -> None:
        """Drop two records that do not fit the schema: types are inferred, names are exact."""
        first = {**self.flights.days[LAST_DAY][0], "airline": "Wrong Type Air"}
        second = {**self.flights.days[LAST_DAY][1], "airline": "Odd Casing Air"}
        wrong_type: Flight = {**first, "dep_delay": "two hours"}
        odd_casing: Flight = {
            ("Carrier" if name == "carrier" else name): value for name, value in second.items()
        }
        drop_file(self.landing / "2014-01" / "odd-records.json", [wrong_type, odd_casing])
        self._count([wrong_type, odd_casing])
        say('dropped 1 file: one record says "dep_delay": "two hours", one says "Carrier"')

    def _count(self, records: Iterable[Flight]) -> None:
        """Remember what was dropped."""
        for record in records:
            self.dropped_rows += 1
            self.dropped_distance += int(str(record["distance"]))

    def _wait_until_landed(self, watch: Watch) -> None:
        """Tell what happens until everything dropped is in the table and its task has ended."""

        def landed() -> bool:
            return self.landed.rows >= self.dropped_rows and not watch.is_busy("ingest")

        watch.until(landed, ACT_SECONDS, f"{self.dropped_rows:,} rows in the table")
        show(f"{self.landed.rows:,} rows in the table, {self.dropped_rows:,} dropped so far")
