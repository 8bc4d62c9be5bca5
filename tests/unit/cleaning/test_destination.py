"""Files are moved to where nothing ingests them, and to no place that is something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.intake.opening import check_destination, locate


@pytest.mark.parametrize(
    ("source", "destination"),
    [
        ("s3://lake/in", "s3://lake/in"),
        ("s3://lake/in", "s3a://lake/in/archive"),
        ("s3://lake/in", "s3://lake"),
        ("s3://lake/a/in", "s3://lake/a"),
        ("s3://lake", "s3://lake/archive"),
        ("s3://lake/in/*.json", "s3://lake/in/archive"),
        ("s3://lake/{in,archive}/*.json", "s3://lake/archive/old"),
        (
            "abfss://c@account.dfs.core.windows.net/in",
            "abfss://c@account.dfs.core.windows.net/in/x",
        ),
        ("gs://lake/in", "gs://lake/in/x"),
    ],
)
def test_not_below_or_above_the_source(source: str, destination: str) -> None:  # B121
    with pytest.raises(OptionError, match="the source"):
        check_destination(destination, locate(source), ())


@pytest.mark.parametrize(
    ("source", "destination"),
    [
        ("s3://lake/in", "s3://lake/in2"),
        ("s3://lake/in", "s3://lake/archive/in"),
        ("s3://lake/in-*/*.json", "s3://lake/archive"),
        ("gs://lake/in", "gs://lake/x"),
        ("abfss://c@account.dfs.core.windows.net/in", "wasbs://c@account.blob.core.windows.net/x"),
        ("/data/in", "/archive"),
    ],
)
def test_beside_the_source(source: str, destination: str) -> None:
    check_destination(destination, locate(source), ("s3://lake/state", "iceberg://c/n/t"))


@pytest.mark.parametrize(
    ("source", "destination"),
    [
        ("s3://lake/in", "s3://other/archive"),
        ("s3://lake/in", "gs://lake/archive"),
        ("s3://lake/in", "/archive"),
        ("sftp://host/in", "sftp://host:2222/done"),
        ("sftp://host/in", "sftp://me@host/done"),
        (
            "abfss://c@account.dfs.core.windows.net/in",
            "abfss://d@account.dfs.core.windows.net/archive",
        ),
    ],
)
def test_not_in_another_bucket(source: str, destination: str) -> None:
    with pytest.raises(OptionError, match="within one bucket, container, disk or server"):
        check_destination(destination, locate(source), ())


@pytest.mark.parametrize("other", ["s3://lake/table", "s3://lake/table/sub/folder", "s3://lake"])
def test_not_in_or_around_what_the_stream_itself_uses(other: str) -> None:
    with pytest.raises(OptionError, match="which this stream uses itself"):
        check_destination("s3://lake/table/sub", locate("s3://lake/in"), ("s3://lake/ok", other))


def test_links_are_followed_on_a_disk(tmp_path: Path) -> None:
    (tmp_path / "in/archive").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "in/archive")
    with pytest.raises(OptionError, match="is below the source"):
        check_destination(str(tmp_path / "link"), locate(str(tmp_path / "in")), ())


@pytest.mark.parametrize("strict", [True, False])
def test_a_pattern_is_read_as_the_stream_reads_it(*, strict: bool) -> None:
    place = locate("s3://lake/*.json")
    if strict:
        check_destination("s3://lake/archive/old", place, (), strict=True)
    else:
        with pytest.raises(OptionError, match="is below the source"):
            check_destination("s3://lake/archive/old", place, ())
