"""Read large archives, and tell how much memory that took; a process of its own.

`python -m tests.unit.archives.measured FOLDER` prints, for each of `CASES`, the rows that came out
or the error, and by how much the largest resident memory grew.
"""

from __future__ import annotations

import json
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from airflow_cloudfiles.engine.errors import CloudFilesError
from airflow_cloudfiles.engine.schema.ddl import parse_schema
from tests.support.landed import Stream
from tests.unit.reading.bombs import forget_most, status

LINES = b"".join(b"%099d\n" % number for number in range(10_000))
PIECES = 200
"""200 MB of text in one member."""
ROWS = 15_000_000
"""120 MB of Parquet, which does not compress."""


def _tar(path: Path) -> None:
    with (
        tarfile.open(path, "w:gz", compresslevel=1) as archive,
        (path.parent / "t").open("w+b") as text,
    ):
        for _ in range(PIECES):
            text.write(LINES)
        text.seek(0)
        member = tarfile.TarInfo("1.txt")
        member.size = len(LINES) * PIECES
        archive.addfile(member, text)


def _zip(path: Path) -> None:
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("1.txt", "w") as member,
    ):
        for _ in range(PIECES):
            member.write(LINES)


def _parquet(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive, archive.open("1", "w", force_zip64=True) as member:
        _write_parquet(member)


def _write_parquet(sink: IO[bytes]) -> None:
    schema = pa.schema([("a", pa.int64())])
    generator = np.random.default_rng(1)
    with pa.parquet.ParquetWriter(sink, schema, use_dictionary=False) as writer:
        for _ in range(30):
            numbers = generator.integers(0, 2**62, ROWS // 30)
            writer.write_table(pa.table({"a": numbers}, schema))


def _many(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(50_000):
            archive.writestr(f"{number}.txt", "x\n")


def _too_many(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(200_000):
            archive.writestr(f"{number:050}.txt", "")


CASES: dict[str, tuple[str, str, Callable[[Path], None]]] = {
    # name: format, end of the name, what writes it
    "text in a tar": ("text", ".tar.gz", _tar),
    "text in a zip": ("text", ".zip", _zip),
    "Parquet in a zip": ("parquet", ".zip", _parquet),
    "many members": ("text", ".zip", _many),
    "too many members": ("text", ".zip", _too_many),
}
SCHEMAS = {"text": "value STRING", "parquet": "a LONG"}


def read(folder: Path, name: str) -> dict[str, object]:
    """Read one of the cases."""
    file_format, end, write = CASES[name]
    source = folder / name / "in"
    source.mkdir(parents=True)
    path = source / f"large{end}"
    write(path)
    limit = {"maxRecordBytes": "8m"} if file_format == "text" else {}
    (source / "t").unlink(missing_ok=True)
    schema = parse_schema(SCHEMAS[file_format])
    stream = Stream(source, folder / name / "state", file_format, schema=schema, **limit)
    tasks = stream.tasks()
    before = forget_most()
    rows, error = 0, ""
    try:
        for task in tasks:
            rows += sum(batch.num_rows for batch in task.read())
    except CloudFilesError as failure:
        error = failure.message
    grew_mb = (status("VmHWM") - before) // 1024
    path.unlink()
    return {"rows": rows, "error": error, "grew_mb": grew_mb}


if __name__ == "__main__":
    json.dump({name: read(Path(sys.argv[1]), name) for name in CASES}, sys.stdout)
