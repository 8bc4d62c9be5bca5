"""Commands take a stream by its name: in a file, or in Airflow."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from airflow_cloudfiles import cli, named_streams
from airflow_cloudfiles.engine.clouds.aws.access import AwsAccess
from airflow_cloudfiles.engine.storage.access import ENVIRONMENT, from_environment

YAML = """
defaults:
  format: json
  options: {pathGlobFilter: '*.json'}
streams:
  orders:
    source: @/in
    checkpoint_location: @/state
    target: @/table
    options: {cloudFiles.inferColumnTypes: true}
  templated:
    source: "{{ var.value.landing }}"
    checkpoint_location: @/state-2
    target: @/table
  in_a_cloud:
    source: s3://lake/in
    checkpoint_location: @/state-3
    target: @/table
    conn_id: lake
"""


@pytest.fixture
def streams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("CLOUDFILES_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"a":1}')
    (tmp_path / "in" / "1.csv").write_text("a")
    file = tmp_path / "streams.yaml"
    file.write_text(YAML.replace("@", str(tmp_path)))
    monkeypatch.setenv(cli.STREAMS_FILE, str(file))
    return str(file)


def test_a_stream_of_a_file_has_its_locations_and_options(streams, capsys):
    assert cli.main(["discover", "--stream", "orders", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["new_files"] == 1, "the CSV does not fit its filter"
    assert cli.main(["state", "--stream", "orders", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"] == 1
    assert cli.main(["explain", "--stream", "orders"]) == 0
    assert "cloudFiles.inferColumnTypes  given    true" in capsys.readouterr().out


def test_what_is_given_beside_the_name_counts(streams, tmp_path, capsys):
    given = ["--checkpoint-location", str(tmp_path / "other"), "--option", "pathGlobFilter=*.csv"]
    assert cli.main(["discover", "--stream", "orders", *given, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sample"] == ["1.csv"]
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--stream", "ordrs"], "has no stream 'ordrs'. Did you mean 'orders'?"),
        (["--stream", "x"], "It has orders, templated, in_a_cloud."),
        (["--stream", "templated"], "is a template, '{{ var.value.landing }}', which only Airflow"),
        (["--stream", "orders", "--streams-file", "none.yaml"], "none.yaml cannot be read"),
        (["--stream", "orders", "--streams-file", ""], "neither in a file (--streams-file) nor"),
    ],
)
def test_a_name_that_cannot_be_used_is_refused_by_name(streams, capsys, arguments, said):
    assert cli.main(["state", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_location_that_the_stream_lacks_is_asked_for(streams, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["replay", "--stream", "orders"])
    assert ended.value.code == 2
    assert "the following arguments are required: --from-batch" in capsys.readouterr().err


def test_every_command_that_opens_a_location_takes_a_name_and_a_connection():
    found = {parser.prog: parser.format_usage() for parser in cli.parsers_of_streams(cli.parser())}
    assert len(found) > 30
    assert all("--stream NAME" in usage and "--conn-id ID" in usage for usage in found.values())
    for command in ("runs", "state files", "table vacuum", "doctor", "notifications set-up"):
        assert f"cloudfiles {command}" in found


@pytest.mark.airflow
def test_a_connection_of_airflow_reaches_the_locations(streams, monkeypatch, capsys):
    for name in ("lake", "other"):
        monkeypatch.setenv(
            f"AIRFLOW_CONN_{name.upper()}",
            json.dumps({"conn_type": "cloudfiles_aws", "login": name, "password": "s"}),
        )
    monkeypatch.setenv(ENVIRONMENT, "")
    stream = named_streams.find("in_a_cloud", streams)
    assert isinstance(stream.access, AwsAccess)
    assert cli.main(["explain", "--stream", "in_a_cloud"]) == 0
    assert from_environment() == stream.access
    assert cli.main(["explain", "--stream", "in_a_cloud", "--conn-id", "other"]) == 0
    assert from_environment() == named_streams.access_of("other") != stream.access
    assert cli.main(["explain", "--stream", "orders", "--conn-id", "none"]) == 2
    assert "Airflow has no connection 'none'" in capsys.readouterr().err
    assert "password" not in os.environ.get("CLOUDFILES_STREAMS", "")
