"""`make pictures`: take the pictures of Airflow's UI that the pages show.

A real Airflow, real runs and a real browser; S3 is an emulator, so that no path of this machine is
in a picture. Takes some minutes. Look at each picture before you commit it.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
import uuid
from functools import partial
from pathlib import Path
from urllib.parse import quote

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from airflow_cloudfiles.engine.errors import SchemaProposedError  # noqa: E402
from airflow_cloudfiles.engine.job.launch import JobSpec, LocalPython, launch  # noqa: E402
from airflow_cloudfiles.engine.schema.proposals import SchemaProposals  # noqa: E402
from demo.airflow_home import AirflowHome  # noqa: E402
from tests.support.aws_landing import connection  # noqa: E402
from tests.support.browser import Browser, browser  # noqa: E402
from tests.support.emulators.aws import Aws, ministack_server  # noqa: E402
from tests.support.emulators.processes import running  # noqa: E402

PICTURES = ROOT / "docs/how-to/pictures"
MOST_BYTES = 150_000
SECONDS = 900
FIRST_DAY, CHANGED_DAY = 10, 18
STATE = "s3://acme-lake/_state/orders"


def main() -> None:
    """Make the streams, run Airflow, take the pictures."""
    with tempfile.TemporaryDirectory(prefix="w-") as name:
        home = Path(name)
        endpoint, server = ministack_server(home / "s3.log")
        with running(server):
            aws = Aws(endpoint)
            for bucket in ("acme-landing", "acme-lake"):
                aws.client("s3").create_bucket(Bucket=bucket)
            shop = Shop(aws)
            os.environ["LOGNAME"] = "airflow"  # whom the schema log names
            shop.ingest_orders()
            _show(aws, shop, home)
    for picture in sorted(PICTURES.glob("*.png")):
        size = picture.stat().st_size
        print(f"{picture.relative_to(ROOT)}: {size:,} bytes")
        if size > MOST_BYTES:
            sys.exit(f"{picture.name} is larger than {MOST_BYTES:,} bytes")


class Shop:
    """What lands, the same in each run.

    Args:
        aws: Where it lands.
    """

    def __init__(self, aws: Aws) -> None:
        self._aws = aws
        self._chance = random.Random(13)  # noqa: S311 - of made-up orders
        self._number = 0

    def land(self, stream: str, day: int, files: int, **more: object) -> None:
        """Land some files of a day."""
        for number in range(files):
            odd = 0.002 if day > FIRST_DAY else 0.0
            rows = range(self._chance.randint(200, 2000))
            lines = "".join(f"{json.dumps(self._order(more, odd))}\n" for _ in rows)
            key = f"{stream}/2026/11/{day:02}/{stream}-{number:04}.json"
            self._aws.client("s3").put_object(Bucket="acme-landing", Key=key, Body=lines.encode())

    def ingest_orders(self) -> None:
        """Two weeks of orders, with a change of the schema that somebody has accepted."""
        for day in range(FIRST_DAY, 23):
            more = {"currency": "CHF"} if day >= CHANGED_DAY else {}
            self.land("orders", day, self._chance.randint(2, 9), **more)
            try:
                self._ingest(day)
            except SchemaProposedError:
                SchemaProposals(STATE, access=self._aws.access).accept(by="ann@acme.example")
                self._ingest(day)

    def _ingest(self, day: int) -> None:
        spec = JobSpec(
            kind="ingest",
            source="s3://acme-landing/orders",
            format="json",
            checkpoint_location=STATE,
            target="s3://acme-lake/orders",
            run_id=f"orders.2026-11-{day:02}.ingest.1-{uuid.uuid4().hex[:8]}",
            options={"cloudFiles.inferColumnTypes": "true", "cloudFiles.requireApproval": "true"},
        )
        launch(spec, LocalPython(), on_log=print, access=self._aws.access).wait()

    def _order(self, more: dict[str, object], odd: float) -> dict[str, object]:
        self._number += 1
        amount: object = round(self._chance.uniform(5, 300), 2)
        if self._chance.random() < odd:
            amount = self._chance.choice(["12 EUR", "free", "n/a"])
        order = {"order_id": self._number, "customer": f"c{self._number % 500}", "amount": amount}
        return {**order, **more}


def _show(aws: Aws, shop: Shop, home: Path) -> None:
    """Run the DAGs in an Airflow, and take the pictures."""
    env = {
        "AIRFLOW_CONN_LAKE": json.dumps(connection(aws, "test-secret")),
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
    }
    users = {"admin": "admin"}
    with AirflowHome(home / "airflow", Path(__file__).parent, env, users=users) as airflow:
        for dag_id in ("orders", "clicks", "invoices"):
            airflow.wait(partial(airflow.api.has_dag, dag_id), SECONDS, dag_id)
            airflow.api.pause(dag_id, paused=False)
        shop.land("clicks", 23, 5)
        shop.land("invoices", 23, 12)
        shop.land("orders", 23, 6, currency="EUR")
        shown = _run(airflow, "orders")
        for dag_id in ("clicks", "invoices"):
            _run(airflow, dag_id)
        with browser(airflow.url) as seen:
            seen.sign_in(airflow.api.headers()["Authorization"].removeprefix("Bearer "))
            _take_tab(seen, shown)
        shop.land("orders", 24, 3, currency="EUR", coupon="SPRING")
        waits = airflow.api.trigger("orders")

        def asks() -> bool:
            return bool(airflow.api.task("orders", waits, "ingest")["state"] == "awaiting_input")

        airflow.wait(asks, SECONDS, "a task that asks")
        with browser(airflow.url) as seen:
            seen.sign_in(airflow.api.headers()["Authorization"].removeprefix("Bearer "))
            _take_pages(seen, shown)


def _run(airflow: AirflowHome, dag_id: str) -> str:
    run_id = airflow.api.trigger(dag_id)
    ended = airflow.wait(partial(airflow.api.run_ended, dag_id, run_id), SECONDS, dag_id)
    if ended != "success":
        raise RuntimeError(f"{dag_id}: {airflow.api.log(dag_id, run_id, 'ingest', 1)}")
    return run_id


def _take_tab(seen: Browser, run_id: str) -> None:
    task = quote(run_id, safe="")
    seen.open(f"/dags/orders/runs/{task}/tasks/ingest/plugin/cloudfiles_stream")
    seen.enter_frame()
    seen.wait_for("Runs, the newest first")
    seen.take_picture(PICTURES / "stream-tab.png", 980)


def _take_pages(seen: Browser, run_id: str) -> None:
    seen.open("/plugin/cloudfiles_streams")
    seen.enter_frame()
    seen.wait_for("invoices")
    seen.take_picture(PICTURES / "streams.png", 800)
    task = quote(run_id, safe="")
    page = f"/cloudfiles/stream/orders/{task}/ingest/-1"
    for part, text, height in (
        ("schema", "coupon", 820),
        ("files", "orders-0000.json", 700),
        ("rescued", "amount", 540),
    ):
        seen.open(f"{page}/{part}")
        seen.wait_for(text)
        seen.take_picture(PICTURES / f"{part}.png", height)


if __name__ == "__main__":
    main()
