"""What came of it: the evidence, and whether all of it is as promised."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from demo.narrator import show, title

if TYPE_CHECKING:
    from demo.story import Story
    from demo.watch import Watch


@dataclass(frozen=True, slots=True)
class Promise:
    """Something the product promises, and whether the demo saw it."""

    text: str
    kept: bool


def tell(story: Story, watch: Watch) -> bool:
    """Print the evidence and the promises.

    Returns:
        Whether every promise was kept.
    """
    _tell_rows(story)
    _tell_schema(story)
    _tell_tries(watch)
    _tell_rescued(story)
    title("As promised?")
    promises = [*_rows_promises(story), *_retry_promises(watch), *_rescue_promises(story)]
    for promise in promises:
        show(f"{'yes' if promise.kept else 'NO '}  {promise.text}")
    return all(promise.kept for promise in promises)


def _tell_rows(story: Story) -> None:
    title("The table")
    show(f"rows dropped into the landing folder  {story.dropped_rows:>11,}")
    show(f"rows in the Delta table               {story.landed.rows:>11,}")
    show(f"sum of distance, dropped              {story.dropped_distance:>11,}")
    show(f"sum of distance, in the table         {story.landed.total('distance'):>11,}")
    for version in story.landed.history():
        show(f"version {version['version']}: {version['operation']}")


def _tell_schema(story: Story) -> None:
    title("The schema, before and after (+ is new)")
    for name, kind in story.landed.columns().items():
        show(f"{' ' if name in story.columns_before else '+'} {name} {kind}")
    title("The schema log (checkpoint/_schemas)")
    for number, content in story.landed.schema_log():
        fields = content["dataSchemaJson"]["fields"]
        names = ", ".join(each["name"] for each in fields)
        show(f"version {number}: {len(fields)} columns: {names}")
        show(f"           why: {json.dumps(content['reason'])[:300]}")


def _tell_tries(watch: Watch) -> None:
    title("The tries of the tasks (an arrived that is running waits for the next files)")
    for each in watch.tries.values():
        show(f"run {each.run}  {each.task:<13} try {each.number}  {each.state}")
        if each.error:
            show(f"       {each.error}")


def _tell_rescued(story: Story) -> None:
    title("The rescued rows")
    for row in story.landed.rescued():
        shown = {name: row[name] for name in ("airline", "carrier", "dep_delay", "_rescued_data")}
        show(*(f"{name} = {value}" for name, value in shown.items()), "")


def _rows_promises(story: Story) -> list[Promise]:
    added = [name for name in story.landed.columns() if name not in story.columns_before]
    versions = [number for number, _ in story.landed.schema_log()]
    same = story.landed.total("distance") == story.dropped_distance
    return [
        Promise(
            "every row dropped is in the table once",
            story.landed.rows == story.dropped_rows and same,
        ),
        Promise("the new column, and nothing else, was added to the table", added == ["airline"]),
        Promise("the schema log has version 0 and its successor 1", versions == [0, 1]),
    ]


def _retry_promises(watch: Watch) -> list[Promise]:
    tries = watch.ended("ingest")
    failed = [each for each in tries if each.state == "failed"]
    healed = {(each.run, each.number) for each in tries if each.state == "success"}
    return [
        Promise(
            "one try of ingest failed, with UnknownFieldException",
            len(failed) == 1 and failed[0].error.startswith("UnknownFieldException"),
        ),
        Promise(
            "Airflow retried it by itself, and the retry succeeded",
            all((each.run, each.number + 1) in healed for each in failed),
        ),
        Promise(
            "no other task failed",
            all(each.state != "failed" or each.task == "ingest" for each in watch.tries.values()),
        ),
    ]


def _rescue_promises(story: Story) -> list[Promise]:
    rescued = [json.loads(str(row["_rescued_data"])) for row in story.landed.rescued()]
    nulled = sorted(
        (row["dep_delay"] is None, row["carrier"] is None) for row in story.landed.rescued()
    )
    return [
        Promise(
            "the value of the wrong type is in _rescued_data, its column is null",
            [each["dep_delay"] for each in rescued if "dep_delay" in each] == ["two hours"]
            and (True, False) in nulled,
        ),
        Promise(
            "the oddly-cased field is in _rescued_data, its column is null",
            len([each for each in rescued if "Carrier" in each]) == 1 and (False, True) in nulled,
        ),
        Promise(
            "exactly these two rows were rescued, and each says from which file",
            len(rescued) == 2
            and all(str(each["_file_path"]).endswith("odd-records.json") for each in rescued),
        ),
    ]
