"""The documentation is true: its code runs and prints what it says, and nothing is left out."""

from __future__ import annotations

import contextlib
import copy
import io
import linecache
import re
from contextlib import closing
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

import airflow_cloudfiles
from airflow_cloudfiles.engine.discovery.services import set_up_notifications
from airflow_cloudfiles.engine.files import START
from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.options.cloud_files import GROUPS, documented
from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
from airflow_cloudfiles.engine.state.packs import decode_entry
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.storage.access import to_environment
from tests.docs.pages import (
    PAGES,
    ROOT,
    Block,
    anchors,
    blocks,
    links,
    load_script,
    python_blocks,
    table_rows,
)
from tests.support import crash_points

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from tests.support.emulators.aws import Aws

PYTHON = {
    page: list(found)
    for page, found in groupby(python_blocks(), key=lambda block: block.page.relative_to(ROOT))
}
PLAIN = {page: [b for b in found if not b.is_dag] for page, found in PYTHON.items()}
DAGS = {page: found for page, found in PYTHON.items() if any(block.is_dag for block in found)}


def _is_spark(page: Path) -> bool:
    return any("SparkSession" in block.code for block in PLAIN[page])


def run_block(block: Block, names: dict[str, Any], tmp_path: Path) -> None:
    """Run a block as a reader would, below a folder of the test's instead of /tmp and /data."""

    def here(text: str) -> str:
        return re.sub(r"/(tmp|data)(?=/)", lambda found: f"{tmp_path}{found[0]}", text)

    printed = io.StringIO()
    text = here(block.code)
    code = compile(text, block.name, "exec")
    # As of a file: the source of a function is looked up.
    linecache.cache[block.name] = (len(text), None, text.splitlines(keepends=True), block.name)
    with contextlib.redirect_stdout(printed):
        exec(code, names)
    if block.prints is not None:
        assert printed.getvalue() == here(block.prints)


@pytest.mark.parametrize(
    "page", [page for page in PLAIN if PLAIN[page] and not _is_spark(page)], ids=str
)
def test_the_blocks_of_a_page_run(page: Path, tmp_path: Path) -> None:
    names: dict[str, Any] = {"__name__": "page"}
    for block in PLAIN[page]:
        if page not in DAGS:
            run_block(block, names, tmp_path)
        else:
            compile(block.code, block.name, "exec")


@pytest.mark.parametrize("page", [page for page in PLAIN if _is_spark(page)], ids=str)
def test_the_spark_blocks_of_a_page_run_and_print_what_it_says(
    spark: SparkSession, page: Path, tmp_path: Path
) -> None:
    names: dict[str, Any] = {"__name__": "page"}
    for block in PLAIN[page]:
        run_block(block, names, tmp_path)


@pytest.mark.airflow
@pytest.mark.parametrize("page", DAGS, ids=str)
def test_the_airflow_blocks_of_a_page_are_valid_dags(page: Path, tmp_path: Path) -> None:
    from airflow.sdk import BaseOperator

    names: dict[str, Any] = {"__name__": "page"}
    dags = {}
    for block in DAGS[page]:
        if not _is_spark(page) or block.is_dag:
            run_block(block, names, tmp_path)
        tasks = [each for each in names.values() if isinstance(each, BaseOperator)]
        dags |= {task.dag_id: task.dag for task in tasks if task.has_dag()}
    for dag in dags.values():
        dag.validate()


@pytest.mark.airflow
def test_a_day_by_folder_takes_its_files_on_the_state_of_the_stream(tmp_path: Path) -> None:
    for name in ("date=2026-01-01/a", "date=2026-01-02/a", "date=2026-01-02/b", "other/c"):
        path = tmp_path / "data/orders/landing" / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('{"a": 1}\n')
    stream = {"source": str(tmp_path / "data/orders/landing"), "format": "json"}
    state = str(tmp_path / "data/orders/checkpoint")

    def recorded() -> list[str]:
        later = DiscoveryOptions(modified_after_us=2**60)  # the stream itself begins later
        with closing(Intake.open(**stream, checkpoint_location=state, discovery=later)) as intake:
            intake.discover()
            return [file.path for file in intake.files.slice(START, intake.head())]

    names: dict[str, Any] = {"__name__": "page"}
    for block in DAGS[Path("docs/how-to/backfill.md")]:
        run_block(block, names, tmp_path)
    assert names["picked"].dag_id == "orders_backfill_by_folder"
    assert recorded() == []
    for day in ("2026-01-02", "2026-01-02", "2026-01-03"):
        picked = copy.copy(names["picked"])
        picked.render_template_fields({"ds": day})
        picked.poke({})
    assert recorded() == ["date=2026-01-02/a.json", "date=2026-01-02/b.json"]


@pytest.fixture
def acme(aws: Aws, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[Aws]:
    """The buckets that the pages name; Spark has the credentials when it is registered with."""
    for name in ("acme-landing", "acme-lake"):
        aws.client("s3").create_bucket(Bucket=name)
    context = spark.sparkContext
    before = dict(context.environment)
    for name, value in to_environment(aws.access).items():
        monkeypatch.setenv(name, value)
        context.environment[name] = value
    yield aws
    context.environment.clear()
    context.environment.update(before)
    airflow_cloudfiles.register(spark)


def test_the_readme_ingests_from_a_cloud_into_a_cloud(spark: SparkSession, acme: Aws) -> None:
    names: dict[str, Any] = {"airflow_cloudfiles": airflow_cloudfiles}
    [block] = [b for b in PLAIN[Path("README.md")] if "s3://" in b.code]
    exec(compile(block.code, block.name, "exec"), names)
    source = open_store("s3://acme-landing/orders", acme.access)
    source.put("a.json", b'{"id": 0}\n{"id": 1}\n')
    names["ingest_orders"](spark)
    table = spark.read.format("deltalake").load("s3://acme-lake/orders")
    assert sorted(row["id"] for row in table.collect()) == ["0", "1"]


def test_the_notebook_of_notifications_ingests_what_a_queue_announces(
    spark: SparkSession, acme: Aws
) -> None:
    names: dict[str, Any] = {}
    page = Path("docs/how-to/come-from-databricks.md")
    [block] = [b for b in PLAIN[page] if "queue" in b.code and "s3://" in b.code]
    exec(compile(block.code, block.name, "exec"), names)
    source = open_store("s3://acme-landing/clicks", acme.access)
    source.put("before.json", b'{"id": 0}\n')
    airflow_cloudfiles.register(spark)  # with the credentials
    queue = set_up_notifications("s3://acme-landing/clicks", "clicks", access=acme.access).options
    names["ingest_clicks"](spark, dict(queue))
    source.put("after.json", b'{"id": 1}\n')
    names["ingest_clicks"](spark, dict(queue))
    table = spark.read.format("deltalake").load("s3://acme-lake/clicks")
    assert sorted(row["id"] for row in table.collect()) == ["0", "1"]
    state = airflow_cloudfiles.cloud_files_state("s3://acme-lake/_state/clicks").read_all()
    found = dict(zip(state["path"].to_pylist(), state["found_by"].to_pylist(), strict=True))
    assert found["s3://acme-landing/clicks/after.json"] == "notification"


def test_a_page_of_each_kind_was_found() -> None:
    assert {Path("README.md"), Path("docs/quickstart.md")} <= set(DAGS)
    assert any(block.prints for block in python_blocks())


def test_the_page_of_options_is_what_the_code_says() -> None:
    module = load_script("generate_options")
    text = module.PAGE.read_text(encoding="utf-8")
    assert text == module.page(), "run: make generate"
    assert module.STUB.read_text(encoding="utf-8") == module.stub(), "run: make generate"
    for name in documented(GROUPS).values():
        assert f"`{name}`" in text


def test_the_page_of_the_command_line_has_every_command_and_argument() -> None:
    script = load_script("generate_cli")
    text = script.PAGE.read_text(encoding="utf-8")
    assert text == script.page(), "run: make generate"
    assert script.described() == set(script.commands()), "each has a table of its arguments"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for path, anchor in links(page):
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{path} in {page.name}"
        if anchor:
            assert anchor in anchors(target), f"{path}#{anchor} in {page.name}"


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached: set[Path] = set()
    todo = [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        if page in reached:
            continue
        reached.add(page)
        for path, _ in links(page):
            target = (page.parent / path).resolve()
            todo += target.glob("*.md") if target.is_dir() else [target] * (target.suffix == ".md")
    assert reached == set(PAGES)


def test_nothing_is_installed_by_a_name_that_no_index_has() -> None:
    for path in [*PAGES, *(ROOT / "docs").rglob("*Dockerfile")]:
        found = re.search(
            r"pip install[^`]*?[\s\"']airflow-provider-cloudfiles\[", path.read_text("utf-8")
        )
        assert found is None, f"{path}: {found}"


def test_the_first_page_has_the_how_tos_of_the_menu_in_its_groups() -> None:
    """Reads the menu with the loader of YAML's base types: mkdocs.yml names a function, too."""
    menu = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), yaml.BaseLoader)["nav"]
    [how_tos] = [part["How to"] for part in menu if "How to" in part]
    groups = {
        title: set(pages)
        for each in how_tos
        if isinstance(each, dict)
        for title, pages in each.items()
    }
    index = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    sections = {part.partition("\n")[0]: part for part in index.split("\n## ")}
    for title, pages in groups.items():
        assert set(re.findall(r"\((how-to/[\w-]+\.md)\)", sections[title])) == pages, title


def test_every_crash_point_has_its_row_and_its_test() -> None:
    page = ROOT / "docs/concepts/exactly-once.md"
    points = {
        *crash_points.INTAKE_POINTS,
        *crash_points.INVENTORY_POINTS,
        *crash_points.INVENTORY_POSITION_POINTS,
        *crash_points.NOTIFICATION_POINTS,
        *crash_points.PLAN_POINTS,
        *crash_points.STREAM_POINTS,
        *crash_points.JOB_POINTS,
        *crash_points.METADATA_POINTS,
    }
    rows = [cells[1].strip("`") for cells in table_rows(page) if len(cells) == 4]
    assert set(rows) - {"crash point", "---"} == points
    for file, test in re.findall(
        r"`(tests/\S+\.py)(?:::(\w+))?`", page.read_text(encoding="utf-8")
    ):
        source = (ROOT / file).read_text(encoding="utf-8")
        assert not test or f"def {test}(" in source, f"{file}::{test}"
    killed = "".join(
        (ROOT / file).read_text(encoding="utf-8")
        for file in ("tests/recovery/test_killed_between_steps.py", "tests/support/driver.py")
    )
    for point in crash_points.STREAM_POINTS:
        assert f'"{point}' in killed, f"no test is killed at {point}"
    draining = ROOT / "tests/emulated/discovery/test_notifications_killed.py"
    assert "zip(NOTIFICATION_POINTS," in draining.read_text(encoding="utf-8")


def test_the_log_entries_of_the_protocol_are_whole() -> None:
    page = ROOT / "docs/protocol.md"
    entries = [b.code for b in blocks(page) if b.code.startswith('v1\n{"id"')]
    assert len(entries) == 3
    for entry in entries:
        header, _ = decode_entry(entry.encode("ascii"), name="protocol.md", format_version=1)
        assert header["id"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_and_modules_that_a_page_names_are_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for name in re.findall(r"`((?:airflow_cloudfiles|tests|docs|demo|scripts)/[\w/.-]+)`", text):
        assert (ROOT / name).exists(), name
    for name in re.findall(r"`(engine/[\w/.-]+)`", text):
        assert (ROOT / "airflow_cloudfiles" / name).exists(), name
