"""Keys of Spark's configuration that are this package's own are checked, and documented."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_cloudfiles.engine.errors import OptionError, UnknownOptionError
from airflow_cloudfiles.engine.job.launch import JobSpec, SparkSubmit
from airflow_cloudfiles.engine.job.spark_command import DAEMON_MODULE
from airflow_cloudfiles.engine.spark.preload import EXECUTOR_PRELOAD, MEANINGS


def _spec(conf: dict[str, str]) -> JobSpec:
    return JobSpec(
        kind="infer",
        source="/in",
        format="json",
        checkpoint_location="/state",
        run_id="r",
        spark_conf=conf,
    )


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("spark.cloudFiles.forkeddaemon", "Did you mean spark.cloudFiles.forkedDaemon?"),
        ("spark.cloudfiles.jvmArchive", "Did you mean spark.cloudFiles.jvmArchive?"),
        ("spark.cloudFiles.x", "There are: spark.cloudFiles.forkedDaemon, "),
    ],
)
def test_a_key_that_does_not_exist_is_refused_and_the_nearest_is_named(key: str, hint: str) -> None:
    for build in (_spec, lambda conf: SparkSubmit(master="yarn", conf=conf)):
        with pytest.raises(UnknownOptionError) as caught:
            build({key: "true"})
        assert f"The Spark configuration {key} does not exist." in str(caught.value)
        assert hint in str(caught.value)


@pytest.mark.parametrize("key", MEANINGS)
def test_a_key_is_true_or_false(key: str) -> None:
    for value in ("true", "FALSE"):
        _spec({key: value})
    with pytest.raises(OptionError, match=f"{key} must be true or false, got 'no'"):
        _spec({key: "no"})


def test_executors_preload_unless_they_cannot_or_must_not() -> None:
    def conf(**given: object) -> list[str]:
        words = SparkSubmit(master="yarn", **given).command("s", "r")  # type: ignore[arg-type]
        return [each for each in words if each.startswith("spark.python.daemon.module=")]

    assert conf() == [f"spark.python.daemon.module={DAEMON_MODULE}"]
    assert conf(conf={EXECUTOR_PRELOAD: "false"}) == []
    assert conf(py_files=["a.whl"]) == []
    assert conf(conf={"spark.python.daemon.module": "mine"}) == ["spark.python.daemon.module=mine"]


def test_every_key_is_documented(repository: Path) -> None:
    page = (repository / "docs" / "how-to" / "small-runs.md").read_text()
    assert all(key in page for key in MEANINGS)
