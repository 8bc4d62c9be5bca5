"""The page of the state's columns has all of them, as the code has them."""

from __future__ import annotations

from airflow_cloudfiles.engine.intake.file_state_columns import COLUMNS
from airflow_cloudfiles.engine.intake.file_states import STATUSES
from tests.docs.pages import ROOT, table_rows

PAGE = ROOT / "docs/reference/cloud-files-state.md"


def test_each_column_has_its_row_with_its_type_in_the_order_of_the_table() -> None:
    said = [(cells[0].strip("`"), cells[1]) for cells in table_rows(PAGE)]
    assert said[2:] == [
        (each.name, each.kind + ("" if each.is_nullable else " NOT NULL")) for each in COLUMNS
    ]


def test_each_status_is_told_where_it_is_asked_for() -> None:
    for page in (PAGE, ROOT / "docs/reference/cli.md", ROOT / "docs/how-to/look-up-files.md"):
        text = page.read_text(encoding="utf-8")
        assert [status for status in STATUSES if status not in text] == []
