"""The forms for issues are as the code host wants them, and ask for what a command prints."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from airflow_cloudfiles import cli
from airflow_cloudfiles.engine import errors
from tests.docs.pages import ROOT

FOLDER = ROOT / ".github/ISSUE_TEMPLATE"
FORMS = sorted(path for path in FOLDER.glob("*.yml") if path.name != "config.yml")
KINDS = {"markdown", "input", "textarea", "dropdown", "checkboxes"}
COMMAND = re.compile(r"`cloudfiles ([a-z]+)")


def _form(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return loaded


def test_there_is_a_form_for_each_kind_of_issue() -> None:
    assert [path.stem for path in FORMS] == ["bug", "feature", "question"]
    assert _form(FOLDER / "config.yml") == {"blank_issues_enabled": True}


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_a_form_has_the_parts_that_are_needed(path: Path) -> None:
    form = _form(path)
    assert set(form) == {"name", "description", "labels", "body"}
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    names = [field["id"] for field in fields]
    assert len(names) == len(set(names))
    assert "versions" in names
    assert any(field.get("validations", {}).get("required") for field in fields)
    for field in form["body"]:
        assert field["type"] in KINDS
        assert set(field) <= {"type", "id", "attributes", "validations"}
        asked = {"value"} if field["type"] == "markdown" else {"label"}
        assert asked <= set(field["attributes"])
        assert ("options" in field["attributes"]) is (field["type"] == "dropdown")


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_commands_and_codes_that_a_form_names_are_there(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    [commands] = [
        set(action.choices)
        for action in cli.parser()._actions
        if isinstance(action, argparse._SubParsersAction)
    ]
    assert set(COMMAND.findall(text)) <= commands
    codes = {kind.code for kind in errors._tree(errors.CloudFilesError).values()}
    assert set(re.findall(r"CF\d{3}", text)) <= codes
    if path.stem != "feature":
        assert "`cloudfiles doctor --json`" in text


def test_the_bug_form_asks_for_the_report_and_the_code() -> None:
    fields = {field.get("id") for field in _form(FOLDER / "bug.yml")["body"]}
    assert {"happened", "reproduce", "report", "code", "versions", "where"} <= fields
