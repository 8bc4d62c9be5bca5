"""What `make bench` says is what was measured."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from typing import Any

import pytest

from airflow_cloudfiles.engine.storage import open_store
from benchmarks import large_state
from benchmarks.report import Aim, markdown

pytestmark = pytest.mark.slow

BURN = """
import json, os, signal, sys, time
def burn(seconds):
    while time.process_time() < seconds:
        pass
"""
IGNORING = (
    BURN
    + """
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # as PySpark's daemon
child = os.fork()
if child == 0:
    burn(1.0)
    time.sleep(2)  # ten samples: what a child has used is known when it ends
    os._exit(0)
try:
    os.waitpid(child, 0)  # its status is thrown away
except ChildProcessError:
    pass
print("FIGURES", json.dumps({"ended": time.time()}))
"""
)
LEFT_BEHIND = (
    BURN
    + """
print("FIGURES", json.dumps({"ended": time.time()}), flush=True)
if os.fork() == 0:
    os.setsid()
    held = bytearray(b"x") * (200 * 2**20)
    burn(1.0)
    with open("orphan", "w") as file:
        file.write(str(time.time()))
    os._exit(0)
"""
)


@pytest.mark.parametrize("program", [IGNORING, LEFT_BEHIND])
def test_cpu_of_processes_that_nobody_waits_for_is_counted_once(tmp_path, program: str) -> None:
    """No bound depends on the machine's speed, but for what Python itself takes to start."""
    (tmp_path / "burning.py").write_text(program, encoding="utf-8")
    # In a process of its own: measuring adopts what others leave behind.
    script = textwrap.dedent(f"""
        import json, os, sys
        sys.path[:0] = [{str(tmp_path)!r}, os.getcwd()]
        os.chdir({str(tmp_path)!r})
        os.environ["PYTHONPATH"] = {str(tmp_path)!r}
        from benchmarks import measure
        found = measure.contender({{"engine": "burning"}}, module="burning")
        print(json.dumps([found.cpu_seconds, found.peak_memory_mb, found.ended, found.figures]))
    """)
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    cpu, peak, ended, figures = json.loads(done.stdout)
    assert 0.9 <= cpu < 1.9, "the second that was burned, once"
    assert figures["ended"] <= ended
    if program is LEFT_BEHIND:
        orphan_ended = float((tmp_path / "orphan").read_text())
        assert ended < orphan_ended, "what is left behind is not waited for in the wall time"
        assert 200 <= peak <= 260


def test_an_aim_is_judged_at_its_own_size_only() -> None:
    aim = Aim(0.6, rows=1_000_000)
    assert aim.judge(0.6, {"rows": 1_000_000, "files": 1}) == "at most 0.6: met"
    assert aim.judge(0.61, {"rows": 1_000_000, "files": 1}) == "at most 0.6: **missed**"
    assert aim.judge(0.1, {"rows": 1000, "files": 1}) == "at most 0.6, at full size"
    assert Aim(20, at_least=True).judge(19.9, {"rows": 1, "files": 1}).endswith("**missed**")


def test_ratios_are_those_of_medians() -> None:
    about = {
        "when": "2026-11-22T23:00:00+00:00",
        "cores": 2,
        "load": [0.1, 0, 0],
        "python": "3.11.7",
        "pyspark": "4.3.0",
        "master": "local[2]",
        "rows": 1,
        "files": 1,
        "archive": False,
    }
    walls = {"ingest": (1, 2, 90), "spark": (20, 5, 30), "spark-delta": (4, 8, 6)}
    results = [
        {
            "case": "nothing",
            "title": "nothing new",
            "engine": engine,
            "wall_seconds": seconds,
            "cpu_seconds": 10.0,
            "peak_memory_mb": 100.0,
            "began": 1.0,
            "ended": 1.0 + seconds,
            "figures": {
                "query_seconds": 0.0,
                "durations": {},
                "started": "1970-01-01T00:00:01.5+00:00",
                "ended": "1970-01-01T00:00:01.6+00:00",
            },
        }
        for engine, all_seconds in walls.items()
        for seconds in all_seconds
    ]
    text = markdown(about, results)
    assert "| nothing new | wall s | 2.0 | 20.0 | 0.10 | at most 0.15: met |" in text
    assert "| nothing new | wall s | 2.0 | 6.0 | 0.33 |  |" in text, "Delta's own sink"
    assert "| nothing new | 0.5 | 0.1 | 0.0 | 0.0 | 1.4 |" in text


def test_the_steps_of_a_large_state_do_what_they_measure(tmp_path, monkeypatch) -> None:
    """The short form of `make bench-discovery ARGS="--state 100000000"`."""
    monkeypatch.setenv("CLOUDFILES_CACHE_DIR", str(tmp_path / "cache"))
    task = {"state": str(tmp_path / "state"), "files": 5000}
    state = open_store(task["state"])

    def step(name: str, **more: object) -> dict[str, Any]:
        return large_state.STEPS[name]({**task, **more}, state)

    assert step("make")["log_bytes"] > 5000 * 50
    assert step("open")["seconds"] < 60
    assert step("list")["list_calls"] == 5
    full = {"incremental": "false"}
    nothing = step("discover", **full)
    assert (nothing["kind"], nothing["listed"], nothing["new"]) == ("full", 5000, 0)
    grown = step("discover", files=5100, incremental="true")
    assert (grown["kind"], grown["new"]) == ("incremental", 100)
    late = step("discover", files=5100, late=50, **full)
    assert (late["listed"], late["new"]) == (5150, 50)
    assert step("discover", files=5100, late=50, **full)["new"] == 0
    step("open", is_empty=True, files=5150)
