"""In a locale that is not UTF-8, the same names are read and written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

from airflow_cloudfiles.engine.state.file_log import FileLog
from airflow_cloudfiles.engine.storage import open_store

pytestmark = pytest.mark.slow

C = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
RUN = """
import sys
from tests.support.ingested import Ingested
from pathlib import Path
class Odd(Ingested):
    def __init__(self, folder):
        (Path(folder) / "unused").mkdir()
        super().__init__(Path(folder) / "unused")
        names = ("l\\u00e4nding \\U0001f48e", "st\\u00e4te", "t\\u00e4ble")
        self.source, self.state, self.target = (f"{folder}/{name}" for name in names)
assert sys.getfilesystemencoding() == sys.argv[2], sys.getfilesystemencoding()
Odd(sys.argv[1]).run()
"""


def run(folder: Path, encoding: str, **environment: str) -> None:
    given = {**os.environ, "PYTHONPATH": str(Path.cwd()), **environment}
    command = [sys.executable, "-c", RUN, str(folder), encoding]
    done = subprocess.run(command, env=given, capture_output=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    (folder / "unused/in").rmdir()
    (folder / "unused").rmdir()


def test_a_stream_goes_on_in_another_locale(tmp_path: Path) -> None:
    source = tmp_path / "länding \U0001f48e"
    source.mkdir()
    names = ["café.json", "日本.json", "a\U0001f600.json"]
    for number, encoding in enumerate(("ascii", "utf-8", "ascii")):
        (source / names[number]).write_text(f'{{"a": "{number}"}}\n')
        run(tmp_path, encoding, **(C if encoding == "ascii" else {"PYTHONUTF8": "1"}))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [source.name, "stäte", "täble"]
    )
    rows = DeltaTable(str(tmp_path / "täble")).to_pyarrow_dataset().to_table()
    assert sorted(rows["a"].to_pylist()) == ["0", "1", "2"]
    log = FileLog(open_store(str(tmp_path / "stäte")))
    recorded = [file.path for number in range(3) for file in log.read(number).files]
    assert sorted(recorded) == sorted(names)


@pytest.mark.parametrize("environment", [C, {}], ids=["C", "UTF-8"])
def test_the_command_line_takes_names_in_utf_8(tmp_path: Path, environment: dict[str, str]) -> None:
    state = tmp_path / "stäte"
    program = Path(sys.executable).with_name("cloudfiles")
    asked = ["state", "files", "--checkpoint-location", str(state).encode()]
    command = [sys.executable, program, *asked]
    given = {**os.environ, "PYTHONPATH": str(Path.cwd()), **environment}
    done = subprocess.run(command, env=given, capture_output=True, check=False, timeout=300)
    said = (done.stdout + done.stderr).decode()
    assert str(state) in said, said
