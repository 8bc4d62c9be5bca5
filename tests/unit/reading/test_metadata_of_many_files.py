"""Lines of many files are parsed together, and each row knows its own file."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_cloudfiles.engine.batches.file_source import split_up
from airflow_cloudfiles.engine.files import START
from airflow_cloudfiles.engine.reading.split_reader import SplitReader
from airflow_cloudfiles.engine.stream import definition
from tests.support.ingested import Ingested
from tests.support.laws import examples

LINES = ('{"a": "1"}', '{"a": "2", "new": 3}', '{"a": [1]}', '{"b": 1}', "{broken", "", "[]", "{}")
MODES = (
    {},
    {"mode": "DROPMALFORMED"},
    {"cloudFiles.schemaHints": "a INT"},
    {"cloudFiles.schemaHints": "a INT", "mode": "DROPMALFORMED"},
    {"rescuedDataColumn": "_rescued_data", "columnNameOfCorruptRecord": "bad"},
)


def _rows(stream: Ingested, *, apart: bool) -> list[str]:
    options = stream._options()
    resolved = definition.resolve_schema(options)
    intake = stream._opened(options)
    try:
        end = intake.head()
        context = definition.batch_context(options, resolved, intake, START, end)
        placed = list(intake.files.placed(START, end))
        groups = [[each] for each in placed] if apart else [placed]
        splits = [split for each in groups for split in split_up(intake.source, each, context, 1)]
    finally:
        intake.close()
    batches = [batch for split in splits for batch in SplitReader(split).read()]
    return [repr(row) for batch in batches for row in batch.to_pylist()]


@pytest.mark.law
@settings(max_examples=examples(60), deadline=None)
@given(
    files=st.lists(st.lists(st.sampled_from(LINES), max_size=4), min_size=1, max_size=6),
    mode=st.sampled_from(MODES),
    column=st.sampled_from(("_metadata", "file_path, file_name AS name")),
)
def test_rows_of_files_that_are_read_together_are_those_of_each(
    tmp_path_factory: pytest.TempPathFactory,
    files: list[list[str]],
    mode: dict[str, str],
    column: str,
) -> None:
    folder: Path = tmp_path_factory.mktemp("together")
    given_options = {"cloudFiles.metadataColumns": column, **mode}
    stream = Ingested(folder, **{**given_options, "cloudFiles.schemaEvolutionMode": "rescue"})
    (stream.source / "0.json").write_text('{"a": "first"}\n')
    for number, lines in enumerate(files, 1):
        (stream.source / f"{number}.json").write_text("".join(f"{line}\n" for line in lines))
    stream.discover()
    together, apart = _rows(stream, apart=False), _rows(stream, apart=True)
    assert Counter(together) == Counter(apart)
    assert together
