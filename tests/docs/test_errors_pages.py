"""The pages about errors have each class once, and what they say of it is so."""

from __future__ import annotations

import json
import re

import pytest

from airflow_cloudfiles import cli
from airflow_cloudfiles.commands import docs
from airflow_cloudfiles.engine import errors
from tests.docs.pages import ROOT, load_script, table_rows

PAGE = ROOT / "docs/how-to/troubleshooting.md"
KINDS = sorted(errors._tree(errors.CloudFilesError).values(), key=lambda kind: kind.code)
_PARTS = re.split(r"^#+ ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
SECTIONS = {text[:5]: text for text in _PARTS}


def test_the_reference_is_what_the_classes_say() -> None:
    script = load_script("generate_errors")
    text = script.PAGE.read_text(encoding="utf-8")
    assert text == script.page(), "run: make generate"
    rows = [cells for cells in table_rows(script.PAGE) if cells[0].startswith("[CF")]
    assert [cells[0][1:6] for cells in rows] == [kind.code for kind in KINDS]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.code)
def test_an_error_has_a_section_under_its_code(kind: type[errors.CloudFilesError]) -> None:
    lines = [line for line in SECTIONS[kind.code].splitlines() if line]
    helps = load_script("generate_errors").retry_helps(kind)
    assert lines[:2] == [kind.code, f"`{kind.__name__}`. Retry helps: {helps}."]
    begun = [found for line in lines if (found := re.match(r"\*\*(\w+)\*\*: ", line))]
    assert [found[1] for found in begun] == ["Why", "Do", "Safe"]


def test_no_section_is_without_its_error() -> None:
    codes = [code for code in SECTIONS if re.fullmatch(r"CF\d{3}", code)]
    assert sorted(codes) == [kind.code for kind in KINDS]


def test_the_page_is_the_one_that_messages_name() -> None:
    assert docs.pages()[errors.PAGE] == PAGE


@pytest.mark.parametrize("asked", ["CF302", "cf302", "[CF302]"])
def test_a_section_is_printed_by_its_code(asked: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["docs", asked]) == 0
    told = capsys.readouterr().out
    assert told.startswith("### CF302\n\n`StateLockedError`.")
    assert "**Safe**" in told
    assert "CF303" not in told


def test_the_last_section_is_printed_and_one_before_a_chapter(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for code in ("CF000", "CF102"):
        assert cli.main(["docs", code, "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["page"] == errors.PAGE
        assert told["text"].startswith(f"### {code}\n")
        assert "## " not in told["text"].removeprefix("###")


def test_an_unknown_code_is_refused_with_its_own_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["docs", "CF999"]) == 2
    assert capsys.readouterr().err == (
        "cloudfiles: No error has the code CF999. `cloudfiles docs reference/errors` lists them. "
        f"{errors.section_of('CF100')}\n"
    )
