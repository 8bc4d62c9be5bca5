"""The Dockerfile of the page about clusters: its form, what it copies, what it links.

No image is built here. Its links are made as the file says, with the Python of the tests.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_cloudfiles import __version__
from airflow_cloudfiles.engine.extensions.cluster.submission import USER
from airflow_cloudfiles.engine.job.spark_command import IMAGE_ENTRY_POINT, IMAGE_PYTHON

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "docs" / "how-to" / "cluster" / "Dockerfile"
HADOLINT = Path(sys.executable).with_name("hadolint")


def _instructions() -> list[tuple[str, str]]:
    """Each instruction and the rest of it, on one line."""
    lines = [line for line in FILE.read_text().splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    pairs = (line.partition(" ") for line in joined.splitlines() if line)
    return [(word, rest.strip()) for word, _, rest in pairs]


def _of(word: str) -> list[str]:
    return [rest for each, rest in _instructions() if each == word]


def test_hadolint_has_nothing_to_say(tmp_path: Path) -> None:
    done = subprocess.run([HADOLINT, FILE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    wrong = tmp_path / "Dockerfile"
    wrong.write_text(FILE.read_text().replace("USER 185", "USER root"))
    assert subprocess.run([HADOLINT, wrong], capture_output=True, check=False).returncode == 1


def test_images_are_pinned_and_the_spark_is_that_of_the_constraints() -> None:
    spark, python = (image.split()[0] for image in _of("FROM"))
    constraints = (ROOT / "requirements" / "constraints.txt").read_text()
    version = re.search(r"^pyspark==(\S+)$", constraints, re.MULTILINE)
    assert version is not None
    assert spark.startswith(f"apache/spark:{version[1]}-")
    assert re.fullmatch(r"python:3\.\d+-slim-\w+", python)


def test_everything_that_is_copied_exists_or_is_what_make_dist_makes() -> None:
    copied = [rest.split() for rest in _of("COPY")]
    sources = [word for words in copied for word in words[:-1] if words[0] != "--from=spark"]
    assert sorted(sources) == [
        "dist/airflow_provider_cloudfiles-*.whl",
        "requirements/constraints.txt",
    ]
    assert (ROOT / "requirements" / "constraints.txt").is_file()
    name = re.search(r'^name = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert name is not None
    wheel = f"dist/{name[1].replace('-', '_')}-{__version__}-py3-none-any.whl"
    assert Path(wheel).match(sources[1])
    assert f"cloudfiles:{__version__}" in FILE.read_text()


def test_user_and_python_are_those_that_submissions_name() -> None:
    assert _of("USER") == [str(USER)]
    assert f"--uid {USER}" in FILE.read_text()
    variables = dict(pair.split("=", 1) for pair in _of("ENV")[0].split())
    assert variables["PYSPARK_PYTHON"] == variables["PYSPARK_DRIVER_PYTHON"] == IMAGE_PYTHON
    assert not [name for name in variables if re.search("SECRET|KEY|TOKEN|PASSWORD", name)]
    secrets = [rest for rest in _of("ARG") if re.search("(?i)secret|key|token|password", rest)]
    assert not secrets, "whoever has the image would have them"


@pytest.mark.slow
def test_its_links_lead_to_a_spark_and_to_the_entry_point(tmp_path: Path) -> None:
    opt = tmp_path / "opt"
    (opt / "cloudfiles" / "bin").mkdir(parents=True)
    (opt / "cloudfiles" / "bin" / "python").symlink_to(sys.executable)
    links = next(rest for rest in _of("RUN") if "job.py" in rest)
    script = links.replace("/opt/", f"{opt}/").replace("chown spark", "test -d")
    script = script.replace(f"{opt}/cloudfiles/bin/python", sys.executable)
    subprocess.run(["sh", "-eu", "-c", script], check=True)
    job = tmp_path / IMAGE_ENTRY_POINT.removeprefix("local:///")
    done = subprocess.run([sys.executable, job], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr[:6]) == (2, "usage:")
    assert (opt / "spark" / "bin" / "spark-submit").is_file()
    assert list((opt / "spark" / "jars").glob("spark-kubernetes_*.jar"))
    assert list((opt / "spark" / "python" / "lib").glob("py4j-*.zip"))
