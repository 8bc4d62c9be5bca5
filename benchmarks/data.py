"""Input of the benchmarks: generated once, kept in a cache folder, the same for every contender."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyarrow.dataset import dataset

ROWS_A_FILE = 100_000
FILES_A_FOLDER = 1000
NEW_COLUMN = "currency"
SEED = 20261121


def records(count: int) -> Iterator[dict[str, Any]]:
    """Ten columns as a web shop's events have them: integers, decimals, texts, a time, a flag."""
    dice = random.Random(SEED)
    cities = ("Zürich", "São Paulo", "New York", "東京", "Reykjavík", "Nairobi")
    for number in range(count):
        yield {
            "id": number,
            "user_id": dice.randrange(10**9),
            "event": dice.choice(("view", "click", "cart", "purchase")),
            "time": f"2026-{dice.randrange(1, 13):02}-{dice.randrange(1, 29):02}T"
            f"{dice.randrange(24):02}:{dice.randrange(60):02}:{dice.randrange(60):02}Z",
            "price": round(dice.random() * 1000, 2),
            "quantity": dice.randrange(1, 20),
            "city": dice.choice(cities),
            "url": f"https://shop.example/{dice.randrange(10**6):06}/{dice.randrange(10**12):012}",
            "comment": "x" * dice.randrange(20, 80),
            "member": dice.random() < 0.5,
        }


def json_files(root: Path, rows: int, rows_a_file: int, *, new_from: int | None = None) -> Path:
    """Write records as JSON Lines, at most a thousand files a folder.

    Args:
        root: Where inputs are kept.
        rows: How many records.
        rows_a_file: How many of them in a file.
        new_from: From this file on, every record has a column more.
    """
    suffix = "" if new_from is None else f"-new-from-{new_from}"
    target = root / f"lines-{rows}-{rows_a_file}{suffix}"
    if not (target / ".complete").exists():
        source = records(rows)
        for number in range(-(-rows // rows_a_file)):
            more = {} if new_from is None or number < new_from else {NEW_COLUMN: "CHF"}
            path = target / f"{number // FILES_A_FOLDER:03}" / f"{number:06}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("w", encoding="utf-8") as file:
                for record in islice(source, rows_a_file):
                    file.write(json.dumps({**record, **more}, ensure_ascii=False) + "\n")
        (target / ".complete").touch()
    return target


def rows_of(source: Path) -> int:
    """How many records are in a folder that `json_files` has made."""
    return int(source.name.split("-")[1])


def row_count(target: str, *, is_delta: bool) -> int:
    """Count the rows in a target without Spark, after its run was measured."""
    if not is_delta:
        return int(dataset(target, format="parquet").count_rows())
    return int(DeltaTable(target).to_pyarrow_dataset().count_rows())
