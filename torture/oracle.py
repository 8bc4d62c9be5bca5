"""Is each row in the table exactly once, and is each file accounted for?

What has landed is known from what was written. The table is copied with the cloud's own client and
read by `deltalake`, bad records as the JSON Lines they are. Only what the package says of files by
name (`cloudfiles state files`) is its own word, and that is held against the rest.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from torture.play import History
from torture.schedule import Landed, Schedule

MOST_FAULTS = 20


def read_table(folder: Path) -> list[dict[str, Any]]:
    """All rows of a table on this machine."""
    from deltalake import DeltaTable  # noqa: PLC0415 - it starts threads

    if not DeltaTable.is_deltatable(str(folder)):
        return []
    rows: list[dict[str, Any]] = DeltaTable(str(folder)).to_pyarrow_dataset().to_table().to_pylist()
    return rows


def write_table(folder: Path) -> int:
    """Write all rows to standard output, as JSON Lines."""
    for row in read_table(folder):
        sys.stdout.write(json.dumps(row, default=str) + "\n")
    return 0


def registered(folder: Path) -> int:
    """Count the files of its source that a table on this machine has, or has had."""
    found = set()
    for path in (folder / "_delta_log").glob("*.json"):
        added = (json.loads(line).get("add") for line in path.read_text().splitlines() if line)
        found |= {each["path"] for each in added if each and each["path"].startswith("_landing/")}
    return len(found)


def bad_records(folder: Path) -> list[str]:
    """What `badRecordsPath` has, as text."""
    found = []
    for path in sorted(folder.rglob("*.json")):
        found += [line for line in path.read_text(errors="replace").splitlines() if line]
    return found


class Oracle:
    """Finds what is wrong.

    Args:
        schedule: What was played.
        history: What has happened.
        rows: Of the table.
        bad: Lines of bad records.
        files: What the package says of files, by name.
        source: URI of the source.
    """

    def __init__(  # noqa: PLR0913 - all that there is to compare
        self,
        schedule: Schedule,
        history: History,
        *,
        rows: list[dict[str, Any]],
        bad: list[str],
        files: list[dict[str, Any]],
        source: str,
    ) -> None:
        self._schedule, self._history = schedule, history
        self._rows, self._bad, self._files = rows, bad, files
        self._source = source
        self.faults: list[str] = []
        self._versions: dict[str, list[Landed]] = defaultdict(list)
        for each in history.landed:
            self._versions[each.key].append(each)
        self._ids = Counter(row["id"] for row in rows if row.get("id") is not None)

    def ask(self) -> list[str]:
        """Compare everything; returns what is wrong."""
        self._rows_once()
        self._values()
        for key, versions in self._versions.items():
            self._file(key, versions)
        self._accounts()
        return self.faults[:MOST_FAULTS]

    def _rows_once(self) -> None:
        known = {each for landed in self._history.landed for each in landed.ids}
        for each, count in self._ids.items():
            if count > 1:
                self.faults.append(f"row {each} is {count} times in the table")
            if each not in known:
                self.faults.append(f"row {each} is in the table and was never written")

    def _values(self) -> None:
        wanted = {
            each: (landed.key, landed.columns)
            for landed in self._history.landed
            for each in landed.ids
        }
        for row in self._rows:
            if row.get("id") not in wanted:
                continue
            key, columns = wanted[row["id"]]
            rescued = json.loads(row.get("_rescued_data") or "{}")
            found = {**rescued, **{name: value for name, value in row.items() if value is not None}}
            for name, value in {"key": key, **columns}.items():
                if found.get(name) != value:
                    self.faults.append(f"row {row['id']}: {name} is {found.get(name)!r}")

    def _present(self, landed: Landed) -> str:
        """Whether a version is in the table: `all`, `none`, `part`; `empty` if it has nothing."""
        rows = sum(each in self._ids for each in landed.ids)
        marks = sum(self._count(mark) for mark in landed.marks)
        wanted = len(landed.ids) + len(landed.marks)
        if wanted == 0:
            return "empty"
        return "none" if rows + marks == 0 else "all" if rows + marks == wanted else "part"

    def _count(self, mark: str) -> int:
        """How often a line that is no record is in the rescued data, or among bad records."""
        rescued = sum(mark in str(row.get("_rescued_data") or "") for row in self._rows)
        bad = sum(mark in line for line in self._bad)
        if rescued + bad > 1:
            self.faults.append(f"{mark} is there {rescued} times rescued, {bad} times as bad")
        return rescued + bad

    def _file(self, key: str, versions: list[Landed]) -> None:
        found = [self._present(each) for each in versions]
        text = f"{key}: versions {found}"
        if "part" in found:
            self.faults.append(f"{text}: a file is there in part")
        self._followed(key, text, found)
        if key in self._history.deleted:
            return  # what else is to be said of it, `_accounts` says
        if self._schedule.allows_overwrites:
            if found[-1] not in {"all", "empty"}:
                self.faults.append(f"{text}: the newest version is missing")
        elif found.count("all") > 1:
            self.faults.append(f"{text}: more than one version of a file that is read once")
        elif "all" not in found and "empty" not in found:
            self.faults.append(f"{text}: the file is missing")

    def _followed(self, key: str, text: str, found: list[str]) -> None:
        """Look whether rows are there that should have gone with their file."""
        if self._schedule.replaces and "all" in found[:-1]:
            self.faults.append(f"{text}: a former version is there")
        if self._schedule.follows_deletes and key in self._history.deleted and "all" in found:
            self.faults.append(f"{text}: it is deleted, and its rows are there")

    def _accounts(self) -> None:
        """Each file is in the state, by name, and what that says of it is so."""
        by_key: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for each in self._files:
            path = str(each["path"]).removeprefix("file://")
            key = path.removeprefix(self._source.rstrip("/") + "/")
            by_key[key if key in self._versions else unquote(key)].append(each)
        for key in set(by_key) - set(self._versions):
            self.faults.append(f"{key} is in the state and never landed")
        for key, versions in self._versions.items():
            self._account(key, versions, by_key[key])

    def _account(self, key: str, versions: list[Landed], said: list[dict[str, Any]]) -> None:
        states = [f"{each['status']}/{each['ingestion_state']}" for each in said]
        if not said and key not in self._history.deleted:
            self.faults.append(f"{key} is not in the state")
        if len(said) > 1 and not self._schedule.allows_overwrites:
            self.faults.append(f"{key} is {len(said)} times in the state: {states}")
        is_gone = self._schedule.follows_deletes and key in self._history.deleted
        done = {"committed", "deleted"} if is_gone else {"committed"}
        if any(each["status"] not in done for each in said):
            self.faults.append(f"{key} is not committed: {states}")
        found = [self._present(each) for each in versions]
        is_there = "all" in found or "empty" in found or is_gone
        if not said and "all" in found:
            self.faults.append(f"{key} is in the table and not in the state")
        if any(each["ingestion_state"] == "INGESTED" for each in said) and not is_there:
            self.faults.append(f"{key} is called ingested, and no version is there: {found}")
        skipped = [each for each in said if each["ingestion_state"] == "SKIPPED_MISSING"]
        if len(skipped) == len(said) and said and "all" in found:
            self.faults.append(f"{key} is called missing, and is there: {found}")
