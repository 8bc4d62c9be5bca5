"""Every test that the page of situations names is there."""

from __future__ import annotations

import re

from tests.docs.pages import ROOT

PAGE = ROOT / "docs/reference/delta-situations.md"
UNITS = ("commit", "merge_schema", "merge_tables", "optimize", "replace_where", "vacuum")
WRITING = ("column_mapping", "enforcement", "evolution", "void_columns")
FILES = {
    "table_stream": "tests/unit/delta/stream/test_table_stream.py",
    "tracked": "tests/unit/delta/stream/test_tracked_evolution.py",
    "untracked": "tests/unit/delta/stream/test_untracked_evolution.py",
    "rows_changed": "tests/unit/delta/stream/test_rows_changed.py",
    "offsets": "tests/unit/delta/stream/test_offsets.py",
    "spark": "tests/spark/test_table_streams_spark.py",
    "of_others": "tests/unit/delta/stream/test_tables_of_others.py",
    "batch_writer": "tests/unit/spark/test_batch_writer.py",
    **{name: f"tests/unit/delta/test_{name}.py" for name in UNITS},
    **{name: f"tests/unit/delta/write/test_{name}.py" for name in WRITING},
    "runs": "tests/unit/batches/test_table_source.py",
    "killed": "tests/recovery/test_table_stream_killed.py",
}


def test_the_page_of_situations_names_tests_that_exist() -> None:
    named = re.findall(r"`(\w+)::(test_\w+)`", PAGE.read_text(encoding="utf-8"))
    assert len(named) > 40
    for file, test in named:
        source = (ROOT / FILES[file]).read_text(encoding="utf-8")
        assert f"def {test}(" in source, f"{file}::{test}"
