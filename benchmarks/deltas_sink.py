"""Our job into its Delta table, beside Delta's own sink: what a user would pick instead.

Delta's own sink gets its rows from Spark's file source, which is given the schema, and from
`cloudFiles`. It needs the PySpark and the jars that `make delta-spark` brings; they are named to
Spark as files, so that nothing is resolved in what is measured.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import data
from benchmarks.cases import Bench, measured
from tests.support.delta_spark import HOME, SESSION, environment

if TYPE_CHECKING:
    from benchmarks.cases import Record

ENGINES: Mapping[str, str] = {"ingest": "ingest", "spark-delta": "spark", "query-delta": "query"}
"""Whom a record names, and the contender that it is."""
JARS: Path = HOME / "ivy" / "jars"


def cases(bench: Bench) -> Iterator[Record]:
    """Rows in files of 100,000, as strings, by each in turn."""
    jars = sorted(map(str, JARS.glob("*.jar")))
    if not jars:
        print("Delta's own sink is not measured: `make delta-spark` brings it", file=sys.stderr)
        return
    rows = bench.arguments.rows
    source = data.json_files(bench.arguments.data, rows, data.ROWS_A_FILE)
    delta = {"session_conf": {**SESSION, "spark.jars": ",".join(jars)}, "sink": "delta"}
    for _ in range(bench.arguments.repeat):
        for name, engine in ENGINES.items():
            more, variables = (delta, environment()) if name != engine else ({}, {})
            with bench.folder() as folder, _variables(variables):
                task = bench.task(source, folder, **more)
                record = measured("deltas-sink", f"{rows:,} rows, strings", engine, task)
                found = data.row_count(task["target"], is_delta=True)
            if found != rows:
                sys.exit(f"{name} has {found} rows in its table, not {rows}")
            yield {**record, "engine": name, "rows": found}


@contextmanager
def _variables(more: Mapping[str, str]) -> Iterator[None]:
    """Set variables of the environment, which the measured process inherits."""
    before = {**os.environ}
    os.environ.update(more)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
