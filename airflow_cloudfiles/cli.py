"""Run what can be done from a shell, without Airflow.

`cloudfiles <command>`: each command is a module in a folder of `commands`, which adds its arguments
and gives an `Outcome`. What went wrong is one sentence on standard error, never a traceback. Ends
with 0 when it is done, 1 when it is not, and 2 when it was asked wrongly.
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import os
import sys
from collections.abc import Sequence

from airflow_cloudfiles import __version__
from airflow_cloudfiles.commands.running.outcome import Outcome, Tone, Toned, colored
from airflow_cloudfiles.engine.errors import CloudFilesError, OptionError, with_code
from airflow_cloudfiles.engine.messages import printable
from airflow_cloudfiles.engine.options.values import check_ends

COMMANDS = {
    "clean": "source.clean",
    "cluster": "machine.cluster",
    "completion": "help.completion",
    "cost": "help.cost",
    "discover": "source.discover",
    "docs": "help.docs",
    "doctor": "machine.doctor",
    "events": "source.events",
    "explain": "help.explain",
    "file": "state.file",
    "infer": "tables.infer",
    "ingest": "tables.ingest",
    "notifications": "source.notifications",
    "promote": "tables.promote",
    "replay": "tables.replay",
    "runs": "state.newest_runs",
    "schema": "state.schema",
    "state": "state.show",
    "table": "tables.table",
}
"""The module of each command below `commands`. It has `add_to(subparsers)`, which sets `run` as a
default of its parsers."""
_OF_ITSELF = frozenset(COMMANDS) - {"completion"}
"""Commands that need to know of no other."""

_EPILOG = """\
Credentials come from where every tool of the cloud finds them (environment variables, profiles,
workload and managed identities, application default credentials), or from CLOUDFILES_ACCESS as this
package's operators set it. They are never arguments: those are seen by everybody on the machine.
"""

NOT_DONE, ASKED_WRONGLY, INTERRUPTED = 1, 2, 130

logger = logging.getLogger("airflow_cloudfiles")
_LOCATIONS = ("source", "checkpoint_location", "schema_location", "location", "target")
_LAYOUT = "\n\t"
"""What of a text is its own layout."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: Without the name of the program; `None` takes those of the process.

    Returns:
        The exit code.
    """
    if arguments is None and sys.getfilesystemencoding() != "utf-8":
        # The names of files are UTF-8, whatever the locale: so are those in the arguments.
        environment = {**os.environ, "PYTHONUTF8": "1"}
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)  # noqa: S606
    texts = sys.argv[1:] if arguments is None else arguments
    command = next((each for each in texts if not each.startswith("-")), None)
    # One command needs one module; help and mistakes need all of them.
    given = parser(command if command in _OF_ITSELF else None).parse_args(arguments)
    level, handler = logger.level, _log_to_stderr(given)
    try:
        _check_locations(given)
        outcome: Outcome = given.run(given)
        _write(outcome, as_json=given.json)
    except KeyboardInterrupt:
        return _say("Interrupted. What is done is done; run the same again to go on.", INTERRUPTED)
    except CloudFilesError as failure:
        is_ours = not isinstance(failure, OptionError)
        return _say(with_code(failure), NOT_DONE if is_ours else ASKED_WRONGLY)
    except OSError as failure:
        return _say(str(failure), NOT_DONE)
    except Exception as failure:
        logger.debug("Unexpected", exc_info=failure)
        return _say(
            f"Unexpected {type(failure).__name__}: {failure}. This is a mistake in the program; "
            "run it with --verbose to see where.",
            NOT_DONE,
        )
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    return outcome.code


def _check_locations(given: argparse.Namespace) -> None:
    """Refuse locations with a blank end, which are others than those that are meant."""
    for name in _LOCATIONS:
        if isinstance(text := getattr(given, name, None), str):
            check_ends(f"--{name.replace('_', '-')}", text)


def parser(only: str | None = None) -> argparse.ArgumentParser:
    """Build the parser of all commands.

    Args:
        only: The one command to add, so that the modules of no other are imported.
    """
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--json", action="store_true", help="write JSON, for programs")
    loudness = shared.add_mutually_exclusive_group()
    loudness.add_argument("--quiet", action="store_true", help="do not tell each step")
    loudness.add_argument("--verbose", action="store_true", help="tell everything")
    found = argparse.ArgumentParser(
        prog="cloudfiles",
        description="Files landing in storage: find them, be notified of them; look at a state and "
        "its schemas.",
        epilog=_EPILOG,
    )
    found.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = found.add_subparsers(title="commands", required=True, metavar="command")
    for module in COMMANDS.values() if only is None else [COMMANDS[only]]:
        importlib.import_module(f"airflow_cloudfiles.commands.{module}").add_to(commands, shared)
    found.set_defaults(program=found)
    return found


class _Printable(logging.Formatter):
    """What is logged, with nothing in it that a terminal obeys but our colors."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record."""
        is_problem, is_caution = (
            record.levelno >= level for level in (logging.ERROR, logging.WARNING)
        )
        tone: Tone | None = "problem" if is_problem else "caution" if is_caution else None
        return colored(printable(super().format(record), but=_LAYOUT), tone, sys.stderr)


def _log_to_stderr(given: argparse.Namespace) -> logging.Handler:
    """Show what this package logs, and nothing of the libraries."""
    level = logging.DEBUG if given.verbose else logging.WARNING if given.quiet else logging.INFO
    handler = logging.StreamHandler()
    handler.setFormatter(_Printable())
    handler.setLevel(level)
    logger.addHandler(handler)
    logger.setLevel(min(level, logger.level or level))
    return handler


def _write(outcome: Outcome, *, as_json: bool) -> None:
    text = json.dumps(outcome.value, indent=1, ensure_ascii=True) if as_json else outcome.text
    lines = [text.rstrip("\n")] if outcome.lines is None else outcome.lines
    try:
        for line in lines:
            text, tone = (line.text, line.tone) if isinstance(line, Toned) else (line, None)
            shown = colored(printable(text, but=_LAYOUT), tone, sys.stdout)
            sys.stdout.write(shown + "\n")
        sys.stdout.flush()
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say(message: str, code: int) -> int:
    text = f"cloudfiles: {printable(message, but=_LAYOUT)}"
    sys.stderr.write(colored(text, "problem", sys.stderr) + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
