"""What the library of a format crashes on is refused by name before, and a dead process is told."""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.parquet import encryption

from airflow_cloudfiles.engine.errors import FileUnreadableError
from airflow_cloudfiles.engine.reading.split_reader import names_of_the_dead
from airflow_cloudfiles.engine.storage import normalize_uri
from tests.unit.stream.test_every_format import Landing


class _Keys(encryption.KmsClient):  # type: ignore[misc]
    """A key service that keeps nothing to itself."""

    def __init__(self, _: object) -> None:
        super().__init__()

    def wrap_key(self, key: bytes, _: str) -> bytes:
        return base64.b64encode(key)

    def unwrap_key(self, wrapped: bytes, _: str) -> bytes:
        return base64.b64decode(wrapped)


def write_encrypted(path: Path, *, plaintext_footer: bool, columns: list[str]) -> None:
    factory = encryption.CryptoFactory(_Keys)
    wanted = encryption.EncryptionConfiguration(
        footer_key="footer", column_keys={"columns": columns}, plaintext_footer=plaintext_footer
    )
    keys = factory.file_encryption_properties(encryption.KmsConnectionConfig(), wanted)
    table = pa.table({"a": [1], "b": ["x"]})
    with pq.ParquetWriter(path, table.schema, encryption_properties=keys) as writer:
        writer.write_table(table)


@pytest.mark.parametrize("plaintext_footer", [True, False])
@pytest.mark.parametrize("columns", [["a"], ["b"], ["a", "b"]], ids=str)
@pytest.mark.parametrize("has_schema", [True, False])
def test_an_encrypted_parquet_file_is_refused_by_name(
    tmp_path: Path, *, plaintext_footer: bool, columns: list[str], has_schema: bool
) -> None:
    landing = Landing("parquet", tmp_path)
    if has_schema:
        landing.drop("1", [{"a": 1, "b": "x"}])
    stream = landing.stream()
    if has_schema:
        stream.run()
    path = landing.source / "2"
    write_encrypted(path, plaintext_footer=plaintext_footer, columns=columns)
    with pytest.raises(FileUnreadableError, match=rf"{path.name} .*it is encrypted"):
        stream.run()
    path.unlink()
    landing.drop("2", [{"a": 2, "b": "y"}])
    stream.run()
    assert {row["a"] for row in stream.rows} >= {2}


DIES = """
import os, sys
from tests.unit.stream.test_every_format import Landing
from pathlib import Path
landing = Landing("json", Path(sys.argv[1]))
landing.drop("1", [{"a": 1}])
landing.drop("caf\\u00e9 2", [{"a": 2}])
stream = landing.stream()
reader = stream.tasks()[int(sys.argv[2])]
rows = reader.read()
next(rows)
os.kill(os.getpid(), int(sys.argv[3]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL])
def test_a_process_that_dies_leaves_the_names_of_its_files(tmp_path: Path, number: int) -> None:
    command = [sys.executable, "-c", DIES, str(tmp_path), "1", str(int(number))]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(Path.cwd())}, check=False, timeout=300
    )
    assert done.returncode == -number
    state = normalize_uri(str(tmp_path / "state"))
    assert names_of_the_dead(state) == [f"file://{tmp_path}/in/caf\u00e9 2"]
    assert names_of_the_dead(state) == []
