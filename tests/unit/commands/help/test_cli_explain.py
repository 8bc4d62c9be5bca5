"""`cloudfiles explain`: what do the options of a stream amount to?"""

from __future__ import annotations

import json

import pytest

from airflow_cloudfiles import cli
from airflow_cloudfiles.engine.files import FILE_IDENTITIES
from airflow_cloudfiles.engine.options.cloud_files import EVOLUTION_MODES, PARSE_MODES
from airflow_cloudfiles.engine.options.discovery import CLEAN_SOURCE
from airflow_cloudfiles.engine.options.explained import explain
from airflow_cloudfiles.engine.options.formats.registry import FORMATS

SOURCE = "s3://lake/in"


def told(*options: str, more: tuple[str, ...] = ()) -> int:
    pairs = [part for each in options for part in ("--option", each)]
    return cli.main(["explain", "--source", SOURCE, "--format", "json", *pairs, *more])


def test_what_was_given_is_shown_with_what_follows(capsys):
    assert told("maxRecordBytes=1m", "BadRecordsPath=s3://lake/bad") == 0
    given, follows = capsys.readouterr().out.split("\n\n")
    assert [line.split() for line in given.splitlines()] == [
        ["badRecordsPath", "given", "s3://lake/bad"],
        ["cloudFiles.format", "given", "json"],
        ["maxRecordBytes", "given", "1m"],
    ]
    assert "A record that is not valid goes to s3://lake/bad.\n" in follows
    assert "A file is known by its path: one that is overwritten is not ingested again." in follows


def test_all_options_are_shown_if_asked_for(capsys):
    assert told(more=("--all", "--json")) == 0
    found = json.loads(capsys.readouterr().out)
    by_name = {each["name"]: each for each in found["options"]}
    assert by_name["cloudFiles.maxFilesPerTrigger"] == {
        "name": "cloudFiles.maxFilesPerTrigger",
        "value": "1000",
        "is_given": False,
    }
    assert by_name["rescuedDataColumn"]["value"] == "_rescued_data"
    assert not any("internal" in name for name in by_name)


def test_what_is_not_valid_is_the_error_of_a_run(capsys):
    assert told("cloudFiles.maxFilePerTrigger=1") == 2
    assert "Did you mean cloudFiles.maxFilesPerTrigger" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"cloudFiles.evolveAhead": "true"}, "Each run reads its files for new fields first"),
        ({"cloudFiles.includeExistingFiles": "false"}, "before the first start are never"),
        ({"cloudFiles.useIncrementalListing": "true"}, "Only what comes behind the newest file"),
        ({"cloudFiles.allowOverwrites": "true"}, "The whole source is listed each time."),
        ({"cloudFiles.maxBytesPerTrigger": "1k"}, "1000 files at most, or about 1024 bytes"),
        ({"ignoreMissingFiles": "true"}, "is skipped, and counted"),
        ({"mode": "FAILFAST"}, "A record that is not valid fails the run."),
    ],
)
def test_what_follows_is_said(options, sentence):
    found = explain(SOURCE, {"cloudFiles.format": "json", **options})
    assert any(sentence in each for each in found.follows), found.follows


@pytest.mark.parametrize("kind", FORMATS)
def test_every_choice_has_its_sentence(kind):
    for name, values in (
        ("cloudFiles.schemaEvolutionMode", EVOLUTION_MODES),
        ("cloudFiles.fileIdentity", FILE_IDENTITIES),
        ("cloudFiles.cleanSource", CLEAN_SOURCE),
        ("mode", PARSE_MODES if kind in {"csv", "json", "xml"} else ()),
    ):
        for value in values:
            given = {"cloudFiles.format": kind, name: value}
            given |= {"rowTag": "row"} if kind == "xml" else {}
            if value == "MOVE":
                given["cloudFiles.cleanSource.moveDestination"] = "s3://lake/out"
            assert all(explain(SOURCE, given).follows)
