"""`cloudfiles docs`: the pages of this version, and that every page a message names is one."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import airflow_cloudfiles
from airflow_cloudfiles import cli
from airflow_cloudfiles.commands import docs

PACKAGE = Path(airflow_cloudfiles.__file__).parent
NAMED = re.compile(r"`cloudfiles docs ([^`]+)`|\bdocs/((?:how-to|reference|concepts)/[\w/-]+)\.md")


def test_all_pages_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["docs", "--json"]) == 0
    names = json.loads(capsys.readouterr().out)
    assert {"quickstart", "reference/options", "how-to/recover"} <= set(names)
    assert not [name for name in names if name.startswith("decisions")]
    assert set(names) == docs.pages().keys()


@pytest.mark.parametrize("asked", ["options", "reference/options", "docs/reference/options.md"])
def test_a_page_has_a_short_name_too(asked: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["docs", asked]) == 0
    assert "cloudFiles.schemaHints" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("optoins", "Did you mean reference/options"),
        ("zzz", "There is no page 'zzz'. `cloudfiles docs` lists the pages."),
    ],
)
def test_a_page_that_is_not_there_is_refused(
    asked: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["docs", asked]) == 2
    assert told in capsys.readouterr().err


def test_every_page_that_a_message_names_is_there() -> None:
    named = set()
    for path in PACKAGE.rglob("*.py"):
        for command, page in NAMED.findall(path.read_text(encoding="utf-8")):
            named.add(command or page)
    assert {"options", "how-to/recover"} <= named
    known = docs.pages()
    assert {page: docs._name(page, known) for page in named}.keys() == named
