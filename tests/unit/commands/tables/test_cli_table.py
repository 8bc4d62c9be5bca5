"""`cloudfiles table` at a shell: what its commands say, and how they end."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_cloudfiles.cli import main
from tests.support.delta_tables import HandMadeTable


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A table with files that no version names."""
    made = HandMadeTable(tmp_path / "t")
    made.create(made.file("part-0.parquet", {"a": [1], "s": ["x"]}))
    for number in range(22):
        made.file(f"orphan-{number:02}.parquet", {"a": [1], "s": ["x"]})
    return made.folder


SHORT = ("--retention-hours", "0", "--allow-short-retention")


def test_a_vacuum_is_a_dry_run_at_first(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", "vacuum", "--target", str(folder), *SHORT]) == 0
    text = capsys.readouterr().out
    assert "files: 22" in text
    assert "more_paths: 2" in text
    assert "Nothing was removed. Add --delete to remove these files." in text
    assert len(list(folder.glob("*.parquet"))) == 23


def test_files_are_removed_when_they_are_to_be(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    size = (folder / "orphan-00.parquet").stat().st_size
    assert main(["table", "vacuum", "--target", str(folder), *SHORT, "--delete", "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert (value["files"], value["data_files"], value["removed"]) == (22, 22, True)
    assert value["bytes"] == 22 * size
    assert len(value["paths"]) == 22
    assert [path.name for path in folder.glob("*.parquet")] == ["part-0.parquet"]


def test_young_files_stay(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", "vacuum", "--target", str(folder), "--delete", "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert (value["files"], value["unnamed_but_young"]) == (0, 22)
    assert value["retention_hours"] == 168


def test_a_short_retention_must_be_allowed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["table", "vacuum", "--target", str(folder), "--retention-hours", "1"]) == 2
    assert "shorter than that of the Delta table" in capsys.readouterr().err


@pytest.mark.parametrize("hours", ["-1", "nan", "inf", "a day"])
def test_hours_are_a_number(folder: Path, hours: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["table", "vacuum", "--target", str(folder), f"--retention-hours={hours}"])
    assert "not a number of hours" in capsys.readouterr().err


def test_no_table_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", "vacuum", "--target", str(tmp_path)]) == 1
    assert "no Delta table" in capsys.readouterr().err


def _mapped(tmp_path: Path) -> str:
    target = str(tmp_path / "mapped")
    DeltaTable.create(target, pa.schema([("id", pa.int64()), ("amount", pa.int32())]))
    return target


def _run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main(["table", *arguments])
    said = capsys.readouterr()
    return code, said.out + said.err


def test_columns_are_renamed_added_and_dropped_at_a_shell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = _mapped(tmp_path)
    at = ("--target", target)
    code, text = _run(capsys, "rename-column", *at, "amount", "total")
    assert code == 1
    assert f"set-property --target {target} delta.columnMapping.mode=name --apply" in text
    mode = "delta.columnMapping.mode=name"
    code, text = _run(capsys, "set-property", *at, mode)
    assert (code, DeltaTable(target).version()) == (0, 0)
    assert "Nothing was changed" in text
    assert "must support the new table features" in text
    assert _run(capsys, "set-property", *at, mode, "--apply")[0] == 0
    assert "like that already" in _run(capsys, "set-property", *at, mode, "--apply")[1]
    assert "dry run" in _run(capsys, "rename-column", *at, "amount", "total", "--dry-run")[1]
    assert _run(capsys, "rename-column", *at, "amount", "total")[0] == 0
    assert "like that already" in _run(capsys, "drop-not-null", *at, "total")[1]
    assert _run(capsys, "add-column", *at, "discount DECIMAL(10,2)")[0] == 0
    assert "dry run" in _run(capsys, "drop-column", *at, "id")[1]
    code, text = _run(capsys, "drop-column", *at, "id", "--apply", "--json")
    found = json.loads(text)
    assert (code, found["version"]) == (0, 4)
    assert found["before"] == "id BIGINT, total INT, discount DECIMAL(10,2)"
    assert found["after"] == "total INT, discount DECIMAL(10,2)"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("rename-column", "nothing", "x"), "no column mapping"),
        (("drop-not-null", "nothing"), "has no column nothing"),
        (("add-column", "id INT"), "There is a column id already"),
        (("add-column", "a INT, b INT"), "names 2 columns"),
        (("add-column", "a INTT"), "INTT"),
        (("set-property", "delta.enableRowTracking=true"), "cannot be set here"),
        (("set-property", "delta.appendOnly"), "must be true or false"),
    ],
)
def test_a_change_that_cannot_be_says_why(
    tmp_path: Path, arguments: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    target = _mapped(tmp_path)
    name, *rest = arguments
    code, text = _run(capsys, name, "--target", target, *rest)
    assert code in {1, 2}
    assert says in text
    assert DeltaTable(target).version() == 0
