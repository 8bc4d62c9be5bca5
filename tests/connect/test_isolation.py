"""What another session of a Spark Connect server, or who sees its UI and log, learns of a run."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from html import unescape
from pathlib import Path

import psutil
import pytest

from airflow_cloudfiles.engine.clouds.aws.access import AwsAccess
from tests.support.connect_server import (
    ConnectServer,
    ConnectStream,
    each_once,
    free_port,
    identity,
    ids,
    land,
)
from tests.support.emulators.aws import Aws
from tests.support.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.slow]

MOST_PAGES = 150
_LINK = re.compile(r"""href=['"]([^'"#]+)['"]""")
_TOKEN = re.compile(r"\b[0-9a-f]{64}\b")
_SPARKS_OWN = re.compile(r"PYTHON_WORKER_FACTORY_SECRET=[0-9a-f]+")
_PAGES = (
    "/",
    "/SQL/",
    "/StreamingQuery/",
    "/connect/",
    "/environment/",
    "/executors/",
    "/jobs/",
    "/stages/",
    "/storage/",
    "/api/v1/applications",
)
_OTHER = """
import json, sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote(sys.argv[1]).create()
found = {
    "conf": dict(spark.conf.getAll),
    "set": [list(row) for row in spark.sql("SET -v").collect()],
    "views": [table.name for table in spark.catalog.listTables()],
    "queries": [query.id for query in spark.streams.active],
    "sources": [list(row) for row in spark.sql("SHOW FUNCTIONS LIKE 'cloud*'").collect()],
}
spark.stop()
print(json.dumps(found))
"""


@dataclass
class Ui:
    """The pages of a server's UI, as a reader of it follows their links."""

    port: int = field(default_factory=free_port)

    def pages(self) -> dict[str, str]:
        """Every page, up to a number of them, with its text."""
        found: dict[str, str] = {}
        waiting = list(_PAGES)
        application = re.search(r'"id" : "([^"]+)"', self._get("/api/v1/applications"))
        assert application
        rest = f"/api/v1/applications/{application[1]}"
        waiting += [f"{rest}/sql?details=true&planDescription=true", f"{rest}/environment"]
        while waiting and len(found) < MOST_PAGES:
            path = waiting.pop(0)
            if path in found:
                continue
            text = found[path] = self._get(path)
            waiting += [
                link
                for each in _LINK.findall(text)
                if (link := unescape(each)).startswith("/")
                and "/static/" not in link
                and "kill" not in link
                and "logPage" not in link
            ]
        return found

    def _get(self, path: str) -> str:
        with contextlib.suppress(urllib.error.HTTPError):
            address = f"http://127.0.0.1:{self.port}{path}"
            with urllib.request.urlopen(address, timeout=30) as answer:
                return unescape(answer.read().decode("utf-8", "replace"))
        return ""


@pytest.fixture(scope="module")
def ui() -> Ui:
    return Ui()


@pytest.fixture(scope="module")
def server(aws: Aws, ui: Ui, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    """A server with an identity of its own, and its UI."""
    conf = {"spark.ui.enabled": "true", "spark.ui.port": str(ui.port)}
    folder = tmp_path_factory.mktemp("ui")
    own = {"python": sys.executable, "environment": identity(aws)}
    with ConnectServer(folder, **own, conf=conf) as running:
        yield running


def _environments(server: ConnectServer) -> str:
    found = ""
    for process in server.pythons():
        with contextlib.suppress(psutil.Error, OSError):
            found += Path(f"/proc/{process.pid}/environ").read_bytes().decode(errors="replace")
    assert found
    return found


def test_nobody_sees_the_credentials_of_a_run(aws, server, ui, tmp_path, monkeypatch):
    """B: in options, plans, UI, logs, configuration and the environment of Python workers."""
    marks = {name: f"mark{name}{uuid.uuid4().hex}" for name in ("key", "secret", "conf", "env")}
    access: AwsAccess = replace(
        aws.access, access_key_id=marks["key"], secret_access_key=marks["secret"]
    )
    stream = ConnectStream(tmp_path, access, **{"cloudFiles.maxFilesPerTrigger": "1"})
    stream.checkpoint_location = f"{aws.bucket()}/state"
    monkeypatch.setenv("SOME_SECRET", marks["env"])
    land(stream, 30)
    conf = {"spark.sql.sources.partitionOverwriteMode": "DYNAMIC", "spark.sql.x": marks["conf"]}
    begun = stream.begin(server.remote, spark_conf=conf)
    until(lambda: stream.batches() >= 2)
    assert any(marks["secret"] in value for value in begun.driver().environ().values())

    other = subprocess.run(
        [sys.executable, _program(tmp_path), server.remote],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    seen = {"another session": other, "environments": _environments(server), **ui.pages()}
    assert begun.end().error is None, begun.error
    seen |= {f"{path} (ended)": text for path, text in ui.pages().items()}
    seen["log"] = server.log()

    assert ids(stream) == each_once(30)
    # The pages are those of this run.
    assert any(f"{stream.table}: micro-batch 2" in text for text in seen.values())
    loud = {name: mark for name, mark in marks.items() if name != "conf"} | {"token": server.token}
    leaks = [
        (where, name) for where, text in seen.items() for name, mark in loud.items() if mark in text
    ]
    # The server's own processes have its token, which is the same for all of its clients.
    assert set(leaks) <= {("environments", "token")}
    assert not [where for where, text in seen.items() if _TOKEN.search(_SPARKS_OWN.sub("", text))]
    found = json.loads(other.splitlines()[-1])
    assert marks["conf"] not in other
    assert found["queries"] == found["views"] == []


def _program(folder: Path) -> Path:
    # A file, since pyspark-client takes `python -c` for its own doctests.
    path = folder / "other.py"
    path.write_text(_OTHER)
    return path
