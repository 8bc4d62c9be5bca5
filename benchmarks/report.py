"""What does a kept result say: `python -m benchmarks.report benchmarks/results/<file>.json`.

Prints tables in Markdown, as `make bench` does at its end. Every figure is a median over the runs
of its case, and every ratio one of medians.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

Record = Mapping[str, Any]
ROWS = 1_000_000
FILES = 10_000
LATENCY_FILES = 2000
"""Sizes that the aims are for; a result of other sizes is not compared with them."""
_OURS, _QUERY, _ROWS = "ingest", "query", "rows"
_SPARK, _SPARK_INFERS = "spark", "spark-infers"
_SPARK_DELTA, _QUERY_DELTA = "spark-delta", "query-delta"
_LOCAL, _CONNECT = "local", "connect"
_MEASURES = {
    "wall": ("wall s", 1),
    "cpu": ("CPU s", 1),
    "peak": ("peak PSS, MB", 0),
    "files": ("files a second, whole run", 0),
    "query": ("query s", 1),
    "pythons": ("Python processes", 0),
}


@dataclass(frozen=True, slots=True)
class Aim:
    """A bound for a ratio.

    Attributes:
        bound: The ratio.
        at_least: Whether more is better.
        rows: The size of input it is for, when only for one: `--rows`.
        files: The same of `--files`.
        latency_files: The same of `--latency-files`.
    """

    bound: float
    at_least: bool = False
    rows: int | None = None
    files: int | None = None
    latency_files: int | None = None

    def judge(self, ratio: float, about: Mapping[str, Any]) -> str:
        """Whether a ratio meets it; without a verdict for input of another size."""
        text = f"{'at least' if self.at_least else 'at most'} {self.bound:g}"
        sizes = ("rows", "files", "latency_files")
        if any(getattr(self, size) not in {None, about.get(size)} for size in sizes):
            return f"{text}, at full size"
        is_met = ratio >= self.bound if self.at_least else ratio <= self.bound
        return f"{text}: {'met' if is_met else '**missed**'}"


AIMS = {
    ("one", "wall"): Aim(0.6),
    ("one", "cpu"): Aim(0.6),
    ("twenty", "wall"): Aim(0.6),
    ("twenty", "cpu"): Aim(0.6),
    ("nothing", "wall"): Aim(0.15),
    ("strings", "wall"): Aim(0.6, rows=ROWS),
    ("strings", "cpu"): Aim(0.55, rows=ROWS),
    ("typed", "wall"): Aim(0.6, rows=ROWS),
    ("typed", "cpu"): Aim(0.55, rows=ROWS),
    ("more-rows", "cpu"): Aim(0.35, rows=ROWS),
    ("more-files", "files"): Aim(20, at_least=True, files=FILES),
}
"""By case and measure; the peak of memory is to be that of Spark at most in every case."""
AIMS_WITHOUT_JVM = {("twenty", "wall"): Aim(0.25), ("twenty", "cpu"): Aim(0.15)}
AIMS_ON_SERVER = {("connect", "wall"): Aim(1.2)}
AIMS_OF_QUERIES = {
    "wall": Aim(1.0, rows=ROWS),
    "cpu": Aim(1.0, rows=ROWS),
    "peak": Aim(1.2, rows=ROWS),
}
"""Of a plain `readStream`, whether its rows pass the JVM or not."""
PEAK = Aim(1.0)
FILES_A_SECOND = Aim(278, at_least=True, latency_files=LATENCY_FILES)
"""A million files an hour."""
TIMES_ONE_AT_A_TIME = Aim(10, at_least=True, latency_files=LATENCY_FILES)
_TRIES = {
    "failing": ("plain", Aim(1.2, rows=ROWS)),
    "healing": ("plain", None),
    "ahead-new": ("ahead-plain", Aim(1.3, rows=ROWS)),
}


def markdown(about: Mapping[str, Any], results: Sequence[Record]) -> str:
    """All tables of a result, in Markdown."""
    sections = (_conditions(about, results), *_tables(about, results))
    return "\n\n".join(section for section in sections if section)


def _tables(about: Mapping[str, Any], results: Sequence[Record]) -> Iterator[str]:
    yield _beside_spark(about, results, _OURS, "The ingest run beside Spark's own stream")
    title = "Without a JVM (engine local) beside Spark's own stream"
    yield _beside_spark(about, results, _LOCAL, title)
    title = "A run on a Spark Connect server beside Spark's own stream there"
    yield _beside_spark(about, results, _CONNECT, title)
    yield _on_server(results)
    yield _beside_spark(about, results, _QUERY, "Plain `readStream` to Delta beside it")
    yield _beside_spark(about, results, _ROWS, "The same where its rows pass the JVM")
    title = "The ingest run beside Spark's own stream that infers its schema first, too"
    yield _beside_spark(about, results, _OURS, title, beside=_SPARK_INFERS)
    title = "The ingest run beside Spark's own stream into Delta's own sink"
    yield _beside_spark(about, results, _OURS, title, beside=_SPARK_DELTA)
    title = "The ingest run beside `cloudFiles` into Delta's own sink"
    yield _beside_spark(about, results, _OURS, title, beside=_QUERY_DELTA)
    yield _schema_change(about, results)
    yield _parts(results)
    yield _cpu_by_kind(results)
    yield _floor(results)
    yield _of_tables(results)
    yield _latency(about, results)


def _conditions(about: Mapping[str, Any], results: Sequence[Record]) -> str:
    """What was measured on what."""
    runs = len({(r["case"], r["engine"], r["began"]) for r in results})
    if not about["archive"]:
        archive = "without a class data archive"
    elif about["archive_bytes"]:
        archive = f"class data archive of {about['archive_bytes'] / 2**20:.0f} MB, made before"
    else:
        archive = "**no class data archive was made**"
    versions = f"Python {about['python']}, PySpark {about['pyspark']}"
    load = f"load {about['load'][0]:.1f} at the beginning"
    return (
        f"{about['when'][:16]} UTC, {about['cores']} cores, {load}, {versions}, "
        f"`{about['master']}`; {runs} runs, {archive}."
    )


def _of(results: Iterable[Record], case: str, engine: str) -> list[Record]:
    return [r for r in results if r["case"] == case and r["engine"] == engine]


def _medians(runs: Sequence[Record]) -> dict[str, float]:
    """The medians of some runs of the same."""
    found = {
        "wall": median(r["wall_seconds"] for r in runs),
        "cpu": median(r["cpu_seconds"] for r in runs),
        "peak": median(r["peak_memory_mb"] for r in runs),
        "pythons": median(r.get("pythons", 0) for r in runs),
    }
    if "input_files" in runs[0]:
        found["files"] = median(r["input_files"] / r["wall_seconds"] for r in runs)
    if "query_seconds" in runs[0]["figures"]:
        found["query"] = median(r["figures"]["query_seconds"] for r in runs)
    return found


def _beside_spark(
    about: Mapping[str, Any],
    results: Sequence[Record],
    engine: str,
    title: str,
    beside: str = _SPARK,
) -> str:
    """A line for each case and measure; aims are for Spark that is given the schema."""
    rows = []
    for case in dict.fromkeys(result["case"] for result in results):
        mine, other = _of(results, case, engine), _of(results, case, beside)
        if not mine or not other:
            continue
        ours, theirs = _medians(mine), _medians(other)
        for measure, (name, digits) in _MEASURES.items():
            if not ours.get(measure) or not theirs.get(measure):
                continue
            ratio = ours[measure] / theirs[measure]
            aim = _aim(case, measure, engine) if beside == _SPARK else None
            verdict = aim.judge(ratio, about) if aim else ""
            figures = (f"{each[measure]:,.{digits}f}" for each in (ours, theirs))
            rows.append((mine[0]["title"], name, *figures, f"{ratio:.2f}", verdict))
    return table(title, ("work", "", "ours", "Spark's", "ratio", "aim"), rows)


def _aim(case: str, measure: str, engine: str) -> Aim | None:
    """What a ratio to Spark's own stream is to be."""
    if engine in {_QUERY, _ROWS}:
        return AIMS_OF_QUERIES.get(measure)
    if engine in {_LOCAL, _CONNECT}:
        return (AIMS_WITHOUT_JVM if engine == _LOCAL else AIMS_ON_SERVER).get((case, measure))
    return PEAK if measure == "peak" else AIMS.get((case, measure))


def _on_server(results: Sequence[Record]) -> str:
    """What runs leave on a server."""
    found = [r["servers_pythons"] for r in _of(results, "connect", _CONNECT)]
    rows = (
        [("after the first run", str(found[0])), ("after the last", str(found[-1]))]
        if found
        else []
    )
    return table("Python processes of the server", ("", ""), rows)


def _schema_change(about: Mapping[str, Any], results: Sequence[Record]) -> str:
    """Each try beside a succeeding run of the same size."""
    rows = []
    for engine in dict.fromkeys(r["engine"] for r in results if r["case"] == "schema"):
        runs = _of(results, "schema", engine)
        found = _medians(runs)
        figures = tuple(f"{found[m]:,.{_MEASURES[m][1]}f}" for m in ("wall", "cpu", "peak"))
        beside, aim = _TRIES.get(engine, ("", None))
        base = _of(results, "schema", beside)
        ratios, verdict = ("", ""), ""
        if base:
            both = [found[m] / _medians(base)[m] for m in ("wall", "cpu")]
            ratios = tuple(f"{ratio:.2f}" for ratio in both)
            verdict = aim.judge(max(both), about) if aim else ""
        rows.append((runs[0]["title"], *figures, *ratios, verdict))
    heads = ("run", "wall s", "CPU s", "peak PSS, MB", "ratio, wall", "ratio, CPU", "aim")
    return table("A schema change, beside the same without a new column", heads, rows)


def _parts(results: Sequence[Record]) -> str:
    """Where the seconds of small runs go."""
    rows = []
    for case in ("one", "twenty", "nothing"):
        runs = _of(results, case, _OURS)
        if runs:
            each = [_seconds_of_parts(run) for run in runs]
            medians = [median(parts[number] for parts in each) for number in range(len(each[0]))]
            rows.append((runs[0]["title"], *(f"{seconds:.1f}" for seconds in medians)))
    heads = ("run", "start, imports", "look, schema, counts", "wait for Spark", "query", "end")
    return table("What each part of a small run costs, in seconds of wall time", heads, rows)


def _seconds_of_parts(run: Record) -> tuple[float, ...]:
    """The parts of a run, which add up to its wall time."""
    figures = run["figures"]
    durations = figures["durations"]
    started, ended = (
        datetime.fromisoformat(figures[name]).timestamp() for name in ("started", "ended")
    )
    spark, query = durations.get("spark_start_seconds", 0.0), figures["query_seconds"]
    own = ended - started - spark - query
    return started - run["began"], own, spark, query, run["ended"] - ended


_KINDS = ("driver", "JVM", "daemon", "tasks", "other")


def _cpu_by_kind(results: Sequence[Record]) -> str:
    """Which processes of an ingest run the CPU seconds go to."""
    rows = []
    for case in dict.fromkeys(result["case"] for result in results):
        runs = [run for run in _of(results, case, _OURS) if run.get("cpu_by_kind")]
        if runs:
            seconds = (median(run["cpu_by_kind"].get(kind, 0.0) for run in runs) for kind in _KINDS)
            rows.append((runs[0]["title"], *(f"{each:.1f}" for each in seconds)))
    return table(
        "CPU seconds of the ingest run, by process, as samples saw them", ("run", *_KINDS), rows
    )


def _floor(results: Sequence[Record]) -> str:
    """What no run of its kind can go below."""
    rows = []
    mine = [result for result in results if result["case"] == "floor"]
    for title in dict.fromkeys(result["title"] for result in mine):
        found = _medians([result for result in mine if result["title"] == title])
        figures = (f"{found[m]:,.{_MEASURES[m][1]}f}" for m in ("wall", "cpu", "peak"))
        rows.append((title, *figures))
    return table("The floor", ("what", "wall s", "CPU s", "peak PSS, MB"), rows)


def _of_tables(results: Sequence[Record]) -> str:
    """Tables beside Spark's Parquet source; of whole processes, and of the work in them."""
    rows = []
    mine = [result for result in results if result["case"].startswith("table-")]
    for title in dict.fromkeys(result["title"] for result in mine):
        runs = [result for result in mine if result["title"] == title]
        found = _medians(runs)
        figures = (f"{found[m]:,.{_MEASURES[m][1]}f}" for m in ("wall", "cpu", "peak"))
        work = [  # of a run that finds nothing: none
            run["figures"].get("query_seconds") or run["figures"].get("open_seconds") or 0
            for run in runs
        ]
        rows.append((title, *figures, f"{median(work):.2f}"))
    heads = ("what", "wall s", "CPU s", "peak PSS, MB", "the read, open or query alone, s")
    return table("Tables", heads, rows)


def _latency(about: Mapping[str, Any], results: Sequence[Record]) -> str:
    """Files a second of a slow store, beside one request after another."""
    mine, other = (_of(results, "latency", engine) for engine in (_OURS, "one-at-a-time"))
    if not mine or not other:
        return ""
    speed = median(r["figures"]["files"] / r["figures"]["query_seconds"] for r in mine)
    whole = median(r["figures"]["files"] / r["wall_seconds"] for r in mine)
    base = median(r["figures"]["files"] / r["figures"]["read_seconds"] for r in other)
    enough = FILES_A_SECOND.judge(speed, about)
    times = TIMES_ONE_AT_A_TIME.judge(speed / base, about)
    count = lambda name: f"{median(r['proxy'][name] for r in mine):,.0f}"  # noqa: E731
    rows = [
        ("files a second, query", f"{speed:,.0f}", enough),
        ("files a second, whole run", f"{whole:,.0f}", ""),
        ("files a second, one request after another, nothing parsed", f"{base:,.0f}", ""),
        ("query, times one after another", f"{speed / base:.1f}", times),
        ("requests to the source", count("requests"), ""),
        ("of them GETs of files", count("gets"), ""),
        ("GETs in flight, at most", count("most_gets_in_flight"), ""),
    ]
    delay = about["latency_milliseconds"]
    title = f"A store with {delay} ms latency, {mine[0]['figures']['files']:,} files of 2 rows"
    return table(title, ("", "", "aim"), rows)


def table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table with its title; nothing where it has no rows."""
    if not rows:
        return ""
    lines = [f"**{title}**", "", _line(heads), _line(["---"] * len(heads))]
    return "\n".join([*lines, *(_line(row) for row in rows)])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    for name in sys.argv[1:]:
        kept = json.loads(Path(name).read_text(encoding="utf-8"))
        print(markdown(kept["about"], kept["results"]))
