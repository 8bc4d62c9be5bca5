"""What is said of all schedules?"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

_BEGIN, _END = "<!-- report -->\n", "<!-- end of report -->"
_SUMMARY = (
    *("store", "schedules", "notified", "table in store", "runs", "kills", "stops"),
    *("files", "rows", "failed"),
)


def read(results: Path) -> list[dict[str, Any]]:
    """The results so far."""
    if not results.exists():
        return []
    return [json.loads(line) for line in results.read_text().splitlines() if line]


def markdown(found: list[dict[str, Any]], about: Mapping[str, Any]) -> str:
    """All counts, as a part of a page."""
    hits = [{**hit, "store": each["store"]} for each in found for hit in each["hits"]]
    kills = [hit for hit in hits if hit["is_hit"] and hit["how"] != "stop"]
    stops = [hit for hit in hits if hit["is_hit"] and hit["how"] != "kill"]
    failed = [each for each in found if each["faults"]]
    first = (
        f"{len(found)} schedules, {len(failed)} failed; {len(kills)} kills, {len(stops)} stops; "
        f"{sum(not hit['is_hit'] for hit in hits)} strikes missed and are not counted."
    )
    parts = [
        first,
        _summary(found),
        _table("Kills by process", kills, lambda hit: f"{hit['run']}: {hit['target']}"),
        _table("Kills by moment", kills, _moment),
        _table("Kills by what the run was doing", kills, lambda hit: hit["doing"]),
        _table("Stops by process", stops, lambda hit: f"{hit['run']}: {hit['target']}"),
        _endings(found),
    ]
    if failed:
        names = ", ".join(f"{each['seed']} ({each['store']})" for each in failed)
        parts.append(f"Failed seeds: {names}.")
    parts.append(f"Commit {about['commit']}, first seed {about['seed']}.")
    return "\n\n".join(parts) + "\n"


def write(path: Path, text: str) -> None:
    """Write a report; in a page that has the marks for it, between them."""
    page = path.read_text() if path.exists() else ""
    if _BEGIN in page and _END in page:
        before, after = page.partition(_BEGIN)[0], page.partition(_END)[2]
        text = f"{before}{_BEGIN}\n{text}\n{_END}{after}"
    path.write_text(text)


def _moment(hit: Mapping[str, Any]) -> str:
    how = " while stopped" if hit["how"] == "stop and kill" else ""
    return "at a random moment" + how if hit["moment"] == "at random" else "at a crash point"


def _summary(found: list[dict[str, Any]]) -> str:
    lines = [
        f"| {' | '.join(_SUMMARY)} |",
        f"| --- |{' --: |' * (len(_SUMMARY) - 1)}",
    ]
    for store in sorted({each["store"] for each in found}):
        some = [each for each in found if each["store"] == store]
        hits = [hit for each in some for hit in each["hits"] if hit["is_hit"]]
        cells = [
            len(some),
            sum(bool(each.get("notified")) for each in some),
            sum(bool(each.get("table_in_store")) for each in some),
            sum(sum(each.get("runs", {}).values()) for each in some),
            sum(hit["how"] != "stop" for hit in hits),
            sum(hit["how"] != "kill" for hit in hits),
            sum(each.get("files", 0) for each in some),
            sum(each.get("rows", 0) for each in some),
            sum(bool(each["faults"]) for each in some),
        ]
        lines.append(f"| {store} | " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def _table(
    title: str, hits: Iterable[Mapping[str, Any]], name: Callable[[Mapping[str, Any]], str]
) -> str:
    hits = list(hits)
    stores = sorted({hit["store"] for hit in hits})
    counts = Counter((name(hit), hit["store"]) for hit in hits)
    names = Counter(name(hit) for hit in hits)
    lines = [
        f"**{title}**",
        "",
        f"| | {' | '.join((*stores, 'all'))} |",
        f"| --- |{' --: |' * (len(stores) + 1)}",
    ]
    for each, total in names.most_common():
        cells = [*(counts[each, store] for store in stores), total]
        lines.append(f"| {each} | " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def _endings(found: list[dict[str, Any]]) -> str:
    endings: Counter[str] = Counter()
    for each in found:
        endings.update(each.get("endings", {}))
    lines = ["**How runs ended** (0: done; 1: an error that says what to do; -9: killed)", ""]
    lines += ["| run and exit code | runs |", "| --- | --: |"]
    lines += [f"| {name} | {count} |" for name, count in sorted(endings.items())]
    return "\n".join(lines)
