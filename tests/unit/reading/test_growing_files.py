"""A file that grows while it is read is refused, and read as a whole the next time."""

from __future__ import annotations

import gzip
import io
from functools import partial
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet
import pytest

from airflow_cloudfiles.engine.errors import FileChangedError
from airflow_cloudfiles.engine.reading import opened
from airflow_cloudfiles.engine.storage.local import LocalStore
from tests.support.landed import Stream

FEW, MANY = 2000, 4000
"""Rows of the file as it is found, and when it has grown."""


def _lines(rows: int) -> bytes:
    return b"".join(b'{"a": %d}\n' % number for number in range(rows))


def _csv(rows: int) -> bytes:
    return b"a\n" + b"".join(b"%d\n" % number for number in range(rows))


def _xml(rows: int) -> bytes:
    return b"<rows>" + b"".join(b"<r><a>%d</a></r>" % each for each in range(rows)) + b"</rows>"


def _avro(rows: int) -> bytes:
    schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "long"}]}
    found = io.BytesIO()
    fastavro.writer(found, schema, ({"a": number} for number in range(rows)))
    return found.getvalue()


def _table(rows: int) -> pa.Table:
    return pa.table({"a": pa.array(range(rows), pa.int64())})


def _parquet(rows: int) -> bytes:
    found = io.BytesIO()
    pyarrow.parquet.write_table(_table(rows), found, row_group_size=500)
    return found.getvalue()


def _orc(rows: int) -> bytes:
    found = io.BytesIO()
    pyarrow.orc.write_table(_table(rows), found)
    return found.getvalue()


KINDS: dict[str, Any] = {
    "json": _lines,
    "json.gz": lambda rows: gzip.compress(_lines(rows)),
    "csv": _csv,
    "csv.gz": lambda rows: gzip.compress(_csv(rows)),
    "text": _lines,
    "xml": _xml,
    "avro": _avro,
    "parquet": _parquet,
    "orc": _orc,
    "binaryFile": _lines,
}


@pytest.mark.parametrize("asks", [1, 2], ids=["before its first bytes", "after them"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_grows_while_it_is_read_is_refused_and_then_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, asks: int
) -> None:
    made, format_ = KINDS[kind], kind.partition(".")[0]
    options = {"header": "true"} if format_ == "csv" else {}
    if format_ == "xml":
        options["rowTag"] = "r"
    (tmp_path / "in").mkdir()
    stream = Stream(tmp_path / "in", tmp_path / "state", format_, **options)
    path = tmp_path / "in" / f"f.{kind}"
    path.write_bytes(made(3))
    stream.run()  # learns the schema
    path = tmp_path / "in" / f"g.{kind}"
    path.write_bytes(made(FEW))
    get_range, asked = LocalStore.get_range, []

    def grown(read: Any, *args: Any, **more: Any) -> Any:
        """Read the file for the first time, which grows before or after that."""
        if not any(path.name in str(each) for each in args):
            return read(*args, **more)
        asked.append(read)
        if len(asked) == asks == 1:
            path.write_bytes(made(MANY))
        found = read(*args, **more)
        if len(asked) == 1 and asks == 2:
            path.write_bytes(made(MANY))
        return found

    monkeypatch.setattr(
        LocalStore, "get_range", lambda *args, **more: grown(get_range, *args, **more)
    )
    monkeypatch.setattr(opened, "open", partial(grown, open), raising=False)
    with pytest.raises(FileChangedError, match="was overwritten while it was being read"):
        stream.run()
    assert asked
    monkeypatch.undo()
    rows = 1 if format_ == "binaryFile" else MANY
    assert len(stream.run()) == rows
    assert stream.run() == []
