"""The estimate of a stream's requests; `tests/emulated/test_costs.py` counts them."""

from __future__ import annotations

import json
import shlex

import pytest

from airflow_cloudfiles import cli
from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.extensions.overview.cost import Load, estimated
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions

SQS = {
    "cloudFiles.useNotifications": "true",
    "cloudFiles.queueUrl": "https://sqs.us-east-1.amazonaws.com/0/q",
}
EVENTS = {
    "cloudFiles.useManagedFileEvents": "true",
    "cloudFiles.fileEventsLocation": "s3://ops/events",
}
FULL = {"cloudFiles.useIncrementalListing": "false"}


def requests(source="s3://lake/in", load=None, **given):
    named = {"cloudFiles.format": "json", **given}
    return estimated(source, CloudFilesOptions.parse(named, path=source), load or Load())


@pytest.mark.parametrize(
    ("given", "new", "nothing", "queue"),
    [
        (FULL, 1100, 1100, 0),  # a million files, a thousand a page; threads make a tenth more
        ({"cloudFiles.useIncrementalListing": "true"}, 6, 6, 0),
        ({"cloudFiles.useIncrementalListing": "auto"}, (7 * 6 + 1100) // 8, (7 * 6 + 1100) // 8, 0),
        (SQS, 0, 0, 100 + 100 + 2 + 2),  # receives, deletes, two empty ones, two sizes
        (EVENTS, 4, 4, 100 + 100 + 8 + 2),  # the log is looked at; four threads end
    ],
)
def test_what_finding_files_costs(given, new, nothing, queue):
    found = requests(**given)
    assert found["new"]["LIST"] - 19 == new  # 11 of the state, 8 of the table
    assert found["nothing"]["LIST"] - 12 == nothing
    assert found["new"]["QUEUE"] == queue
    assert found["nothing"]["QUEUE"] == max(0, queue - 200)
    assert found["new"]["HEAD"] == 2 + (1000 if queue else 0)  # a message is not believed
    assert found["first"]["LIST"] >= 1100  # whatever announces files: what was there is listed


def test_files_are_read_once_and_those_of_the_sample_twice():
    found = requests(load=Load(files=1000, new=10, file_bytes=2**24 + 1), **FULL)
    assert found["first"]["GET"] == 14 + 3 + 1000 * 2 * 2
    assert found["new"]["GET"] == 14 + 3 + 3 * 50 + 10 * 2
    again = requests(load=Load(1000, 10, 100), **{"cloudFiles.fileIdentity": "content"})
    assert again["new"]["GET"] == 14 + 3 + 3 * 50 + 10 * 2  # once to know it, once to read it


def test_further_micro_batches_are_counted():
    one = requests(load=Load(1000, 100), **FULL)["new"]
    four = requests(load=Load(1000, 100), **FULL, **{"cloudFiles.maxFilesPerTrigger": "25"})["new"]
    assert four - one == {"LIST": 9, "GET": 3 * (6 + 3 + 50), "HEAD": 3, "PUT": 18}
    small = requests(
        load=Load(1000, 100, 1000), **FULL, **{"cloudFiles.maxBytesPerTrigger": "50000b"}
    )["new"]
    assert small["PUT"] - one["PUT"] == 6


def test_other_clouds_have_other_pages_and_queues():
    assert requests("gs://lake/in", **FULL)["nothing"]["LIST"] == 12 + 1100
    azure = "abfss://c@account.dfs.core.windows.net/in"
    assert requests(azure, **FULL)["nothing"]["LIST"] == 12 + 220
    queue = {"cloudFiles.useNotifications": "true", "cloudFiles.queueName": "q"}
    assert requests(azure, **queue)["new"]["QUEUE"] == 32 + 1000 + 4
    queue = {"cloudFiles.useNotifications": "true", "cloudFiles.subscription": "s"}
    google = requests("gs://lake/in", load=Load(new=2000), **queue)
    assert google["new"]["QUEUE"] == 2 * 3 + 2  # a pull, one that hides, one that acknowledges
    for place in ("/data/in", "sftp://host/in"):
        with pytest.raises(OptionError, match="in none of them"):
            requests(place)


def test_the_command_multiplies_runs_and_prices(capsys):
    given = [
        "cost",
        "--source",
        "s3://lake/in",
        "--option",
        "cloudFiles.useIncrementalListing=true",
    ]
    prices = ["--price", "list=0.005", "--price", "GET=0.0004"]
    assert cli.main([*given, "--runs", "2", "--idle-runs", "10", *prices, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    lists = 30 * (2 * found["new"]["LIST"] + 10 * found["nothing"]["LIST"])
    gets = 30 * (2 * found["new"]["GET"] + 10 * found["nothing"]["GET"])
    assert (found["month"]["LIST"], found["month"]["GET"]) == (lists, gets)
    assert found["month"]["price"] == pytest.approx(lists * 5e-6 + gets * 4e-7, abs=1e-4)
    assert cli.main([*given, "--files", "1,000"]) == 0
    assert "first run, 1,000 files" in capsys.readouterr().out


def test_the_page_shows_what_the_command_prints(capsys, repository):
    page = (repository / "docs/reference/cli.md").read_text().partition("## cost")[2]
    command, shown = page.split("```sh\n")[1], page.split("```text\n")[1]
    words = shlex.split(command.partition("```")[0].replace("\\\n", " "))
    assert cli.main(words[1:]) == 0
    assert capsys.readouterr().out == shown.partition("```")[0]


@pytest.mark.parametrize(
    ("price", "said"),
    [
        ("LISTS=1", "Did you mean LIST?"),
        *((f"LIST={text}", f"{text!r} is no price") for text in ("cheap", "-1", "nan", "inf")),
    ],
)
def test_a_wrong_price_is_named(capsys, price, said):
    assert cli.main(["cost", "--source", "s3://lake/in", "--price", price]) == 2
    assert said in capsys.readouterr().err
