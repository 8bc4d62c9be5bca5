"""A law of proposals: of folders with known tables, the tables are found, and YAML ingests them."""

from __future__ import annotations

import csv
import gzip
import json
import string
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_cloudfiles.engine.extensions.proposal.propose import propose
from airflow_cloudfiles.engine.extensions.proposal.proposed import Limits, Places, as_yaml
from airflow_cloudfiles.engine.extensions.streams_file import read_streams
from tests.support.ingested import Ingested
from tests.support.laws import examples

Row = dict[str, object]
_WORDS = st.text(alphabet=string.ascii_letters + " éß\"'", min_size=1, max_size=8)
_SEPARATORS = [",", ";", "\t", "|"]
_FORMATS = ["csv", "csv.gz", "json", "document", "parquet", "xml"]
_LAYOUTS = ["flat", "shared", "keys", "dates", "below a date"]


@dataclass(frozen=True)
class KnownTable:
    """A table that a proposal has to find."""

    name: str
    format: str
    sep: str
    layout: str
    files: list[list[Row]]

    @property
    def streams_format(self) -> str:
        return {"csv.gz": "csv", "document": "json"}.get(self.format, self.format)

    def write(self, root: Path) -> None:
        for number, rows in enumerate(self.files):
            path = root / self._folder(number) / f"{self._stem(number)}.{self._ending}"
            path.parent.mkdir(parents=True, exist_ok=True)
            self._write(path, rows)

    def _folder(self, number: int) -> str:
        return {
            "flat": self.name,
            "shared": "landing",
            "keys": f"{self.name}/day=2026-11-{number + 1:02}/hour={number}",
            "dates": f"{self.name}/2026/11/{number + 1:02}",
            "below a date": f"by_date/2026-11-{number + 1:02}/{self.name}",
        }[self.layout]

    def _stem(self, number: int) -> str:
        shared = f"{self.name}_2026-11-{number + 1:02}T00:00:00Z"
        return shared if self.layout == "shared" else f"part-{number:05}"

    @property
    def _ending(self) -> str:
        return {"document": "json"}.get(self.format, self.format)

    def _write(self, path: Path, rows: list[Row]) -> None:
        if self.format == "parquet":
            pq.write_table(pa.Table.from_pylist(rows), path)
        elif self.format == "json":
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        elif self.format == "document":
            path.write_text(json.dumps(rows, indent=1))
        elif self.format == "xml":
            cells = "".join(f"<r><id>{row['id']}</id><x>{row['x']}</x></r>" for row in rows)
            path.write_text(f"<all>{cells}</all>")
        else:
            opened = gzip.open if self.format == "csv.gz" else open
            with opened(path, "wt", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, ["id", "word", "x"], delimiter=self.sep)
                writer.writeheader()
                writer.writerows(rows)


@st.composite
def _tables(draw: st.DrawFn) -> list[KnownTable]:
    count = draw(st.integers(1, 4))
    names = ["orders", "customers", "click_events", "Stock", "été"]
    chosen = draw(st.permutations(names))[:count]
    return [
        KnownTable(
            name,
            draw(st.sampled_from(_FORMATS)),
            draw(st.sampled_from(_SEPARATORS)),
            draw(st.sampled_from(_LAYOUTS)),
            [
                [
                    {"id": 1000 * number + at, "word": word.strip() or "w", "x": at + 1}
                    for at, word in enumerate(words)
                ]
                for number, words in enumerate(
                    draw(st.lists(st.lists(_WORDS, min_size=2, max_size=4), min_size=2, max_size=3))
                )
            ],
        )
        for name in chosen
    ]


@pytest.mark.law
@settings(max_examples=examples(24), deadline=None)
@given(tables=_tables())
def test_the_tables_that_are_there_are_proposed_and_ingested(tables: list[KnownTable]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        root = folder / "in"
        root.mkdir()
        for table in tables:
            table.write(root)
        found = propose(
            str(root),
            Places(state_root=str(folder / "states"), target_root=str(folder / "tables")),
            Limits(),
        )
        file = folder / "streams.yaml"
        file.write_text(as_yaml(found), encoding="utf-8")
        streams = read_streams(file)
        ingested = {}
        for at, (stream, given_to) in enumerate(streams.items()):
            own = folder / str(at)
            own.mkdir()
            run = Ingested(own)
            run.source = Path(given_to["source"].removeprefix("file://"))
            run.state = Path(given_to["checkpoint_location"])
            run.target = Path(given_to["target"])
            run.format = given_to["format"]
            run.given = (
                {**run.given, "cloudFiles.maxFilesPerTrigger": "9", **given_to["options"]}
                if given_to.get("options")
                else {"cloudFiles.maxFilesPerTrigger": "9"}
            )
            run.run()
            rows = run.table.to_pyarrow_dataset().to_table().to_pylist()
            ingested[stream] = (
                run.format,
                sorted((row["id"], row["x"], row.get("word")) for row in rows),
            )
        expected = sorted(
            (
                table.streams_format,
                sorted(
                    (row["id"], row["x"], None if table.format == "xml" else row["word"])
                    for rows in table.files
                    for row in rows
                ),
            )
            for table in tables
        )
        assert sorted(ingested.values()) == expected, file.read_text()
