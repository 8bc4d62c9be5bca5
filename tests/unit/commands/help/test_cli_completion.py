"""`cloudfiles completion`, through shells; and the colors of a terminal."""

from __future__ import annotations

import io
import json
import logging
import shutil
import subprocess
import sys

import pytest

from airflow_cloudfiles import cli
from airflow_cloudfiles.commands.docs import SHELLS
from airflow_cloudfiles.commands.outcome import colored, has_colors

COMPLETE = """
source "$1"
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
COMPREPLY=()
_shtab_cloudfiles cloudfiles "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""
"""What bash does when somebody presses the tab key."""


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("completion") / "cloudfiles.bash"
    made = subprocess.run(
        [sys.executable, "-m", "airflow_cloudfiles.cli", "completion", "bash"],
        capture_output=True,
        text=True,
        check=True,
    )
    path.write_text(made.stdout, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["sta"], {"state", "status"}),
        (["state", "r"], {"runs", "relocate"}),
        (["doctor", "--sour"], {"--source"}),
        (
            ["ingest", "--option", "cloudFiles.maxF"],
            {"cloudFiles.maxFilesPerTrigger=", "cloudFiles.maxFileAge="},
        ),
        (["ingest", "--option", "mergeS"], {"mergeSchema="}),
        (["docs", "how-to/rec"], {"how-to/recover"}),
        (["completion", "z"], {"zsh"}),
    ],
)
def test_bash_completes_commands_arguments_options_and_pages(script, words, found):
    done = subprocess.run(
        ["bash", "-c", COMPLETE, "bash", script, "cloudfiles", *words],
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(done.stdout.split()) == found, done.stderr


def test_a_local_folder_is_completed_for_a_location(script, tmp_path):
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing.txt").touch()
    done = subprocess.run(
        ["bash", "-c", COMPLETE, "bash", script, "cloudfiles", "discover", "--source", "land"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["landing"]


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_gets_a_script_that_it_can_parse(shell, tmp_path, capsys):
    assert cli.main(["completion", shell]) == 0
    path = tmp_path / "script"
    path.write_text(capsys.readouterr().out, encoding="utf-8")
    assert "maxFilesPerTrigger=" in path.read_text(encoding="utf-8")
    program = shutil.which(shell)
    if program:  # bash is everywhere; of the others, those that are here
        subprocess.run([program, "-n", path], check=True)


def test_without_shtab_it_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert cli.main(["completion", "bash"]) == cli.NOT_DONE
    assert "with the extra completion" in capsys.readouterr().err


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def plain_environment(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    return monkeypatch


def test_a_terminal_has_colors_unless_it_is_told_otherwise(plain_environment):
    assert has_colors(Terminal())
    assert not has_colors(io.StringIO())
    plain_environment.setenv("TERM", "dumb")
    assert not has_colors(Terminal())
    plain_environment.setenv("FORCE_COLOR", "1")
    assert has_colors(io.StringIO())
    plain_environment.setenv("NO_COLOR", "1")
    assert not has_colors(Terminal())


def test_only_what_is_wrong_is_colored(plain_environment):
    assert colored("fine", None, Terminal()) == "fine"
    assert colored("bad", "problem", Terminal()) == "\x1b[31mbad\x1b[0m"
    assert colored("bad", "problem", io.StringIO()) == "bad"


def test_the_doctor_shows_problems_in_red_and_json_without_colors(
    plain_environment, tmp_path, capsys
):
    plain_environment.setenv("FORCE_COLOR", "1")
    asked = ["doctor", "--source", str(tmp_path / "gone\x1b(B")]
    assert cli.main(asked) == cli.NOT_DONE
    shown = capsys.readouterr().out
    (problem,) = [line for line in shown.splitlines() if "is no folder" in line]
    assert problem.startswith("\x1b[31mproblem")
    assert problem.endswith("\x1b[0m")
    assert "\x1b(B" not in shown  # of a name: never obeyed
    assert cli.main([*asked, "--json"]) == cli.NOT_DONE
    found = json.loads(capsys.readouterr().out)
    assert "problem" in {each["verdict"] for each in found}


def test_errors_and_warnings_are_colored_where_they_are_seen(plain_environment, capsys):
    plain_environment.setenv("FORCE_COLOR", "1")
    assert cli.main(["docs", "no-such-page"]) == cli.ASKED_WRONGLY
    assert capsys.readouterr().err.startswith("\x1b[31mcloudfiles: There is no page")
    record = logging.LogRecord("x", logging.WARNING, "", 0, "less\x1b[2J", (), None)
    assert cli._Printable().format(record) == "\x1b[33mless\\x1b[2J\x1b[0m"
