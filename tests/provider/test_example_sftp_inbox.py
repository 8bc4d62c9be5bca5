"""The example of an inbox of workbooks: from the server into the table, and off the server."""

from __future__ import annotations

import json
import os
import time
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk.execution_time.context import OutletEventAccessors
from deltalake import DeltaTable

from airflow_cloudfiles import UnknownFieldException
from tests.support.formats.excel_files import xlsx
from tests.support.sftp_servers import faulty, public

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.sftp_servers import FaultyServer

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow]

EXAMPLE = Path(__file__).parents[2] / "dags_examples/example_sftp_inbox.py"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyServer]:
    with faulty(tmp_path / "server") as found:
        access = found.served.access
        connection = {
            "conn_type": "cloudfiles_sftp",
            "host": access.host,
            "port": access.port,
            "login": access.user,
            "password": access.password,
            "extra": {"host_key": public(found.key)},
        }
        monkeypatch.setenv("AIRFLOW_CONN_ACME_SFTP", json.dumps(connection))
        monkeypatch.setenv("SFTP_INBOX_SERVER", f"sftp://{access.host}:{access.port}")
        monkeypatch.setenv("CLOUDFILES_ROOT", str(tmp_path / "data"))
        (found.folder / "inbox").mkdir()
        (found.folder / "done").mkdir()
        yield found


def _tasks() -> Any:
    """The example's tasks, as Airflow imports them."""
    spec = spec_from_file_location(EXAMPLE.stem, EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _upload(server: FaultyServer, name: str, sheets: dict[str, Any], *, seconds_ago: int) -> None:
    path = server.folder / "inbox" / name
    path.write_bytes(xlsx(sheets))
    os.utime(path, (0, time.time() - seconds_ago))


def _run(example: Any, number: int) -> Any:
    """The two tasks, one after the other, and what the second one reports."""
    told = example.arrived.poke({})
    assert told.is_done
    ti = SimpleNamespace(
        id="0198c1a4-0000-7000-8000-000000000000",
        dag_id="example_sftp_inbox",
        run_id=f"r{number}",
        task_id="ingest",
        map_index=-1,
        try_number=1,
    )
    example.ingest.batch = told.xcom_value  # what Airflow puts in place of `arrived.output`
    return example.ingest.execute({"ti": ti, "outlet_events": OutletEventAccessors()})


def test_workbooks_go_from_the_server_into_the_table_and_off_the_server(
    server: FaultyServer, tmp_path: Path
) -> None:
    example = _tasks()
    months = {
        "January 2026": [["order", "sold"], [1, 0.5], [2, 1.5]],
        "February 2026": [["order", "sold"], [3, 2.5]],
        "Notes": [["anything"], ["else"]],
        "January 2025": [["order", "sold"], [0, 9.5]],
    }
    _upload(server, "first.xlsx", months, seconds_ago=3600)
    _upload(server, "young.xlsx", months, seconds_ago=0)
    report = _run(example, 1)
    assert (report["files"], report["rows"]) == (1, 3)
    more = {"March 2026": [["order", "sold", "currency"], [4, 3.5, "CHF"]]}
    _upload(server, "second.xlsx", more, seconds_ago=3600)
    (server.folder / "inbox/young.xlsx").unlink()
    # An hour later, as far as the first workbook is concerned.
    example.ingest.options = {
        **example.ingest.options,
        "cloudFiles.cleanSource.retentionDuration": "0 seconds",
    }
    with pytest.raises(UnknownFieldException, match="currency"):  # B46: Airflow tries again
        _run(example, 2)
    assert _run(example, 3)["rows"] == 1
    table = DeltaTable(str(tmp_path / "data/table")).to_pyarrow_table()
    rows = [
        (row["order"], row["sold"], row["currency"], row["file_name"], row["sheet_name"])
        for row in sorted(table.to_pylist(), key=lambda row: row["order"])
    ]
    assert rows == [
        (1, 0.5, None, "first.xlsx", "January 2026"),
        (2, 1.5, None, "first.xlsx", "January 2026"),
        (3, 2.5, None, "first.xlsx", "February 2026"),
        (4, 3.5, "CHF", "second.xlsx", "March 2026"),
    ]
    assert [path.name for path in (server.folder / "done").iterdir()] == ["first.xlsx"]
    assert [path.name for path in (server.folder / "inbox").iterdir()] == ["second.xlsx"]
