"""A bucket of each cloud is looked at as a folder is, and nothing is written to it."""

from __future__ import annotations

import json

import pytest

from airflow_cloudfiles import cli
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.storage.access import to_environment


@pytest.mark.parametrize("cloud", ["aws", "azurite", "gcs"])
def test_the_tables_of_a_bucket_are_proposed(
    cloud: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    emulator = request.getfixturevalue(cloud)
    bucket = emulator.container() if cloud == "azurite" else emulator.bucket()
    source = open_store(f"{bucket}/in", emulator.access)
    for day in ("2026-11-28", "2026-11-29"):
        source.put(f"orders/day={day}/1.json", b'{"id": 1, "city": "Z\xc3\xbcrich"}\n')
        source.put(f"prices/prices_{day}.csv", b"a;b\n1;2,5\n2;3,5\n")
    before = [file.path for file in source.list()]
    for name, value in to_environment(emulator.access).items():
        monkeypatch.setenv(name, value)
    command = ["propose", source.uri, "--json", "--state-root", "/tmp/proposed/state"]
    assert cli.main([*command, "--target-root", "/tmp/proposed/tables"]) == 0
    found = json.loads(capsys.readouterr().out)
    streams = found["streams"]
    named = {each["format"]: each for each in streams.values()}
    assert len(streams) == 2
    assert named["csv"]["options"]["sep"] == ";"
    assert named["json"]["source"] == f"{source.uri}/orders"
    assert [file.path for file in source.list()] == before
