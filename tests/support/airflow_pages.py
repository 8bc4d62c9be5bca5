"""What a real Airflow shows and passes on of a task: its pages, links and lineage."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import Request, urlopen

from demo.airflow_home import AirflowHome

LINEAGE = "lineage.jsonl"
"""The file that the transport of OpenLineage writes."""


def links_lead_to_the_stream(airflow: AirflowHome, dag_id: str, run_id: str) -> None:
    """What Airflow keeps as links of a task instance; the table is a local one."""
    of_run = f"/api/v2/dags/{dag_id}/dagRuns/{quote(run_id, safe='')}/taskInstances"
    links = airflow.api.call("GET", f"{of_run}/ingest/links")["extra_links"]
    page = urlsplit(links.pop("Report"))
    status, text = get(airflow, page.path, airflow.api.headers())
    assert (status, f'<tr id="{page.fragment}"' in text) == (200, True)
    assert ".ingest.2" in page.fragment  # the try
    tab, of_task = links.pop("Stream"), f"/dags/{dag_id}/runs/{quote(run_id, safe='')}/tasks/ingest"
    assert tab == f"{airflow.url}{of_task}/plugin/cloudfiles_stream"
    assert links == {"Table": None}
    arrived = airflow.api.call("GET", f"{of_run}/arrived/links")["extra_links"]
    assert arrived == {"Stream": tab.replace("/ingest/", "/arrived/"), "Table": None}


def lineage_of(root: Path, job: str) -> list[tuple[str, int | None, int | None, bool]]:
    """The events of a task: type, files that were read, rows that were written, has a schema."""
    told = [json.loads(line) for line in (root / LINEAGE).read_text().splitlines()]
    found = []
    for event in told:
        if event["job"]["name"] != job:
            continue
        (source,), (target,) = event["inputs"], event["outputs"]
        assert (source["namespace"], target["namespace"]) == ("file", "file")
        read = source.get("inputFacets", {}).get("inputStatistics", {})
        written = target.get("outputFacets", {}).get("outputStatistics", {})
        has_schema = "schema" in target.get("facets", {})
        found.append(
            (event["eventType"], read.get("fileCount"), written.get("rowCount"), has_schema)
        )
    return found


def pages_of(
    airflow: AirflowHome, dag_id: str, run_id: str, headers: dict[str, str] | None = None
) -> dict[str, tuple[int, str]]:
    """The pages of the stream of a task, by their last part, with their status."""
    of_task = page_of(dag_id, run_id)
    given = airflow.api.headers() if headers is None else headers
    parts = ("", "/schema", "/files", "/rescued")
    return {part: get(airflow, of_task + part, given) for part in parts}


def page_of(dag_id: str, run_id: str) -> str:
    """The first page of the stream of a task."""
    return f"/cloudfiles/stream/{dag_id}/{quote(run_id, safe='')}/ingest/%7BMAP_INDEX%7D"


def post(airflow: AirflowHome, path: str, fields: dict[str, str], headers: dict[str, str]) -> int:
    """Send a form; gives the status."""
    request = Request(airflow.url + path, urlencode(fields).encode(), headers)
    try:
        with urlopen(request, timeout=60) as answer:
            return int(answer.status)
    except HTTPError as error:
        return error.code


def get(airflow: AirflowHome, path: str, headers: dict[str, str]) -> tuple[int, str]:
    try:
        with urlopen(Request(airflow.url + path, headers=headers), timeout=60) as answer:
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, ""
