"""The page about archives: cloudFiles finds them, Spark's own readers read them."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest

from tests.docs.pages import ROOT, blocks
from tests.support.landing import rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = ROOT / "docs" / "how-to" / "archives.md"


def _zip(path: Path, *names: tuple[str, str]) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in names:
            archive.writestr(name, text)


@pytest.mark.skipif(
    tuple(map(int, pyspark.__version__.split(".")[:2])) < (4, 3),
    reason="Spark reads archives from 4.3 on",
)
def test_a_query_reads_each_archive_once(spark: SparkSession, tmp_path: Path) -> None:
    [block] = [block for block in blocks(PAGE) if block.language == "py"]
    code = compile(block.code.replace("/data/orders", str(tmp_path)), block.name, "exec")
    landing = tmp_path / "landing"
    landing.mkdir()
    _zip(landing / "a b.zip", ("x/1.json", '{"id": 1, "amount": 1.5}\n'), ("2.json", '{"id": 2}'))
    text = b'{"id": 3}\n{"id": 4}\n'
    with tarfile.open(landing / "c%20d.tar.gz", "w:gz") as archive:
        member = tarfile.TarInfo("3.json")
        member.size = len(text)
        archive.addfile(member, io.BytesIO(text))
    before = spark.conf.get("spark.sql.files.archive.reader.enabled")
    try:
        for _ in range(2):
            names: dict[str, Any] = {"__name__": "page"}
            exec(code, names)
        assert sorted(row["id"] for row in rows(tmp_path / "table")) == [1, 2, 3, 4]
        _zip(landing / "e.zip", ("5.json", '{"id": 5}'))
        exec(code, {"__name__": "page"})
    finally:
        assert before is not None
        spark.conf.set("spark.sql.files.archive.reader.enabled", before)
    assert sorted(row["id"] for row in rows(tmp_path / "table")) == [1, 2, 3, 4, 5]
