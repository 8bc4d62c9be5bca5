"""The files of the pages on production and monitoring: linted, and of one mind with the code."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from airflow_cloudfiles import __version__
from airflow_cloudfiles.hooks.observability.metrics import COUNTERS, KINDS
from tests.docs.pages import ROOT, python_blocks

FOLDER = ROOT / "docs/how-to/production"
COMPOSE = ROOT / "docs/how-to/compose"
HADOLINT = Path(sys.executable).with_name("hadolint")
PROMTOOL = shutil.which("promtool")
SECRET = re.compile(r"password|secret|token|key\b|connection$", re.IGNORECASE)
WORKERS = {
    "terminationGracePeriodSeconds",
    "resources",
    "serviceAccount",
    "extraVolumeMounts",
}
KEYS = {  # what Airflow's chart 1.22 has at these places
    "": {
        "airflowVersion",
        "apiServer",
        "config",
        "data",
        "executor",
        "fernetKeySecretName",
        "jwtSecretName",
        "apiSecretKeySecretName",
        "images",
        "postgresql",
        "secret",
        "statsd",
        "triggerer",
        "workers",
    },
    "images.airflow": {"repository", "tag"},
    "data": {"metadataSecretName"},
    "postgresql": {"enabled"},
    "statsd": {"enabled", "extraMappings"},
    "workers": {"celery", "kubernetes"},
    "workers.celery": {*WORKERS, "replicas", "volumeClaimTemplates"},
    "workers.kubernetes": {*WORKERS, "extraVolumes"},
    "triggerer": {"serviceAccount", "resources"},
    "apiServer": {"serviceAccount"},
}


class _Strict(yaml.SafeLoader):
    """Refuses a key that is there twice, where YAML would take the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key) for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"{node.start_mark}: {keys}"
        return super().construct_mapping(node, deep)


def _load(name: str) -> Any:
    return yaml.load((FOLDER / name).read_text(encoding="utf-8"), _Strict)


def _at(values: Any, path: str) -> Any:
    for name in filter(None, path.split(".")):
        values = values[name]
    return values


def test_hadolint_has_nothing_to_say_about_the_image(tmp_path: Path) -> None:
    text = (FOLDER / "Dockerfile").read_text(encoding="utf-8")
    done = subprocess.run(
        [HADOLINT, FOLDER / "Dockerfile"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    wrong = tmp_path / "Dockerfile"
    wrong.write_text(text.replace("USER 50000", "USER 0"))
    assert subprocess.run([HADOLINT, wrong], capture_output=True, check=False).returncode == 1
    assert f"airflow-cloudfiles:{__version__}" in text


def test_the_image_has_the_airflow_of_the_constraints_and_of_the_values() -> None:
    text = (FOLDER / "Dockerfile").read_text(encoding="utf-8")
    constraints = (ROOT / "requirements/constraints.txt").read_text(encoding="utf-8")
    version = re.search(r"^apache-airflow==(\S+)$", constraints, re.MULTILINE)
    assert version is not None
    assert (
        re.search(r"^FROM apache/airflow:(\S+)-python3\.\d+$", text, re.MULTILINE)[1]
        == (version[1])
    )
    values = _load("values.yaml")
    assert values["airflowVersion"] == version[1]
    assert values["images"]["airflow"]["tag"] == __version__
    cache = re.search(r"CLOUDFILES_CACHE_DIR=(\S+)", text)
    for kind in ("celery", "kubernetes"):
        [mount] = values["workers"][kind]["extraVolumeMounts"]
        assert cache[1].startswith(f"{mount['mountPath']}/"), "the volume is there for the cache"


@pytest.mark.parametrize("path", KEYS)
def test_the_values_have_keys_that_the_chart_knows(path: str) -> None:
    assert set(_at(_load("values.yaml"), path)) <= KEYS[path]


def test_the_values_name_secrets_and_hold_none() -> None:
    values = _load("values.yaml")
    [connection] = values["secret"]
    assert set(connection) == {"envName", "secretName", "secretKey"}
    assert connection["envName"].startswith("AIRFLOW_CONN_")

    def leaves(node: Any, name: str = "") -> Any:
        if isinstance(node, dict):
            for key, each in node.items():
                yield from leaves(each, key)
        elif isinstance(node, list):
            for each in node:
                yield from leaves(each, name)
        else:
            yield name, node

    for name, value in leaves(values):
        if SECRET.search(name):
            assert name.endswith(("SecretName", "secretName", "secretKey")), f"{name}: {value}"


def test_a_worker_has_the_memory_that_the_page_asks_for() -> None:
    values = _load("values.yaml")
    concurrency = values["config"]["celery"]["worker_concurrency"]
    page = (ROOT / "docs/how-to/run-in-production.md").read_text(encoding="utf-8")
    each = re.search(r"`worker_concurrency = (\d+)` needs `\1 . ([\d.]+)` GB .*?: (\d+) GB", page)
    assert each is not None
    assert int(each[1]) == concurrency
    assert concurrency * float(each[2]) < int(each[3])
    assert values["workers"]["celery"]["resources"]["limits"]["memory"] == f"{each[3]}Gi"


def test_compose_without_a_server_changes_services_that_are_there() -> None:
    base = yaml.safe_load((COMPOSE / "compose.yaml").read_text(encoding="utf-8"))
    over = yaml.safe_load((COMPOSE / "local-spark.yaml").read_text(encoding="utf-8"))
    assert over["services"].keys() <= base["services"].keys()
    build = over["services"]["airflow-scheduler"]["build"]
    context = (COMPOSE / build["context"]).resolve()
    assert (context, (context / build["dockerfile"]).is_file()) == (ROOT, True)
    mounts = over["services"]["airflow-scheduler"]["volumes"]
    assert {mount.partition(":")[0] for mount in mounts} == over["volumes"].keys()


@pytest.mark.slow
def test_compose_without_a_server_is_as_the_specification_wants_it() -> None:
    checker = Path(sys.executable).with_name("check-jsonschema")
    command = [checker, "--builtin-schema", "vendor.compose-spec", COMPOSE / "local-spark.yaml"]
    subprocess.run(command, check=True)


_PROMETHEUS = "airflow_cloudfiles_"


def _mapped(name: str) -> tuple[str, dict[str, str]] | None:
    """What statsd_exporter makes of a name: the first mapping that matches; none: dropped."""
    for mapping in _load("statsd-mapping.yaml")["mappings"]:
        assert mapping["match_type"] == "regex"
        found = re.fullmatch(mapping["match"], name)
        if found is None:
            continue
        if mapping.get("action") == "drop":
            return None

        def filled(text: str, found: re.Match[str] = found) -> str:
            return re.sub(r"\$(\d)", lambda group: found[int(group[1])], text)

        labels = {label: filled(text) for label, text in mapping["labels"].items()}
        return filled(mapping["name"]), labels
    raise AssertionError(f"{name} is matched by nothing")


def test_the_mappings_of_the_chart_are_those_of_the_file() -> None:
    [mappings] = _load("statsd-mapping.yaml").values()
    assert mappings == _load("values.yaml")["statsd"]["extraMappings"]


def test_the_page_of_metrics_has_each_with_its_kind() -> None:
    page = (ROOT / "docs/how-to/know-what-happens-in-airflow.md").read_text(encoding="utf-8")
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| `cloudfiles.")]
    found = {
        name: row[2].strip() for row in rows for name in re.findall(r"`cloudfiles\.(\w+)`", row[1])
    }
    assert found == KINDS
    assert set(COUNTERS) < set(KINDS)


@pytest.mark.parametrize("metric", KINDS)
def test_every_metric_gets_the_labels_of_its_task(metric: str) -> None:
    labels = {"dag_id": "orders-eu", "task_id": "group_ingest"}
    name = f"airflow_cloudfiles_{metric}"
    assert _mapped(f"airflow.cloudfiles.orders-eu.group_ingest.{metric}") == (name, labels)
    mapped = _mapped(f"airflow.cloudfiles.orders-eu.group_ingest.12.{metric}")
    assert mapped == (name, {**labels, "map_index": "12"})
    assert _mapped(f"airflow.cloudfiles.{metric}") is None


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (Debian: prometheus)")
def test_promtool_has_nothing_to_say_about_the_rules() -> None:
    found = subprocess.run(
        [str(PROMTOOL), "check", "rules", str(FOLDER / "alerts.yaml")],
        capture_output=True,
        check=False,
        text=True,
    )
    rules = [rule for each in _load("alerts.yaml")["groups"] for rule in each["rules"]]
    assert (found.returncode, found.stderr) == (0, "")
    assert f"SUCCESS: {len(rules)} rules found" in found.stdout


def test_alerts_watch_metrics_that_are_there() -> None:
    [group] = _load("alerts.yaml")["groups"]
    made = {f"{_PROMETHEUS}{metric}" for metric in KINDS}
    made |= {f"{_PROMETHEUS}run_duration_count"}  # of a histogram
    names = [rule["alert"] for rule in group["rules"]]
    assert len(names) == len(set(names)) == 8
    for rule in group["rules"]:
        used = set(re.findall(r"airflow_cloudfiles_\w+", rule["expr"]))
        assert used, rule["alert"]
        assert used <= made, rule["alert"]
        assert rule["expr"].count("(") == rule["expr"].count(")")
        counters = {each for each in used if KINDS.get(each.removeprefix(_PROMETHEUS)) == "counter"}
        counted = re.findall(r"increase\((\w+)\[", rule["expr"])
        assert counters <= set(counted), f"{rule['alert']}: a counter alone says nothing"
        assert "$labels.dag_id" in rule["annotations"]["summary"]
    page = (ROOT / "docs/how-to/monitor.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`(CloudFiles[A-Z]\w+)`", page)) - {"CloudFilesReconcileOperator"} <= (
        set(names)
    )


@pytest.mark.airflow
def test_the_callback_of_the_page_routes_a_failure_by_its_code(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from types import SimpleNamespace

    from airflow_cloudfiles.engine.errors import StateLockedError, with_code

    names: dict[str, Any] = {"__name__": "page"}
    for block in python_blocks():
        if block.page == ROOT / "docs/how-to/monitor.md":
            exec(compile(block.code, block.name, "exec"), names)
    told = names["say_what_failed"]
    task = SimpleNamespace(task_id="ingest")
    told({"exception": Exception(with_code(StateLockedError("Busy."))), "task_instance": task})
    told({"exception": ValueError("no code"), "task_instance": task})
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("To platform: ingest failed with CF302. Busy. [CF302]")
    assert second == "To data: ingest failed with unknown. no code"
