"""Input of the benchmarks: generated once, kept in a cache folder, the same for every contender."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

ROWS_A_FILE = 100_000
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


def big_files(folder: Path, rows: int) -> Path:
    """Write `rows` records as JSON Lines, 100,000 a file."""
    target = folder / f"big-{rows}"
    if not (target / ".complete").exists():
        target.mkdir(parents=True, exist_ok=True)
        source = records(rows)
        for number in range(-(-rows // ROWS_A_FILE)):
            lines = (json.dumps(r, ensure_ascii=False) for r in islice(source, ROWS_A_FILE))
            (target / f"part-{number:04}.json").write_text(
                "\n".join(lines) + "\n", encoding="utf-8"
            )
        (target / ".complete").touch()
    return target


def small_files(folder: Path, files: int) -> Path:
    """Write files of two records, a thousand a folder."""
    target = folder / f"small-{files}"
    if not (target / ".complete").exists():
        source = records(2 * files)
        for number in range(files):
            path = target / f"{number // 1000:03}" / f"{number:06}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            pair = [json.dumps(next(source), ensure_ascii=False) for _ in range(2)]
            path.write_text("\n".join(pair) + "\n", encoding="utf-8")
        (target / ".complete").touch()
    return target
