"""Run what can be done from a shell, without Airflow.

`cloudfiles <command>`: each command is in a module below `commands`, which adds its arguments
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
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, redirect_stdout
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.commands.outcome import ColoredLine, Outcome, Parser, Tone, colored
from airflow_cloudfiles.engine.errors import CloudFilesError, OptionError, with_code
from airflow_cloudfiles.engine.messages import printable
from airflow_cloudfiles.engine.options.values import check_ends
from airflow_cloudfiles.engine.storage.access import to_environment
from airflow_cloudfiles.version import __version__

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.extensions.streams_file import NamedStream

STREAMS_FILE = "CLOUDFILES_STREAMS"
"""The environment variable that names a file of streams."""
COMMANDS = {
    "clean": "tables.jobs:add_clean",
    "cluster": "cluster",
    "completion": "docs:add_completion",
    "cost": "explain:add_cost",
    "discover": "source.discover",
    "docs": "docs:add_docs",
    "doctor": "doctor",
    "events": "source.events",
    "explain": "explain:add_explain",
    "file": "state.files",
    "infer": "tables.jobs:add_infer",
    "ingest": "tables.jobs:add_ingest",
    "notifications": "source.notifications",
    "promote": "tables.jobs:add_promote",
    "propose": "source.propose",
    "quarantine": "tables.table:add_quarantine",
    "replay": "tables.jobs:add_replay",
    "rescued": "state.status:add_rescued",
    "runs": "state.status:add_runs",
    "schema": "state.schema",
    "state": "state.show",
    "status": "state.status:add_status",
    "table": "tables.table:add_table",
    "verify": "state.status:add_verify",
}
"""The module of each command below `commands`, and its function that adds the command, if that is
not `add_to`. It sets `run` as a default of its parsers."""
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
    found = parser(command if command in _OF_ITSELF else None)
    if not texts:
        found.print_help()
        return 0
    with ExitStack() as logged:
        try:
            _know_stream(found, texts)
            given = found.parse_args(arguments)
            logged.enter_context(_log_to_stderr(given))
            _check_locations(given)
            # Airflow logs to stdout, too, while it runs; programs expect JSON and nothing else.
            with redirect_stdout(sys.stderr) if given.json else nullcontext():
                outcome: Outcome = given.run(given)
            _write(outcome, as_json=given.json)
        except KeyboardInterrupt:
            what = "Interrupted. What is done is done; run the same again to go on."
            return _say(what, INTERRUPTED)
        except CloudFilesError as failure:
            is_ours = not isinstance(failure, OptionError)
            return _say(with_code(failure), NOT_DONE if is_ours else ASKED_WRONGLY)
        except OSError as failure:
            return _say(str(failure), NOT_DONE)
        except Exception as failure:
            logger.debug("Unexpected", exc_info=failure)
            return _say(
                f"Unexpected {type(failure).__name__}: {failure}. This is a mistake in the "
                "program; run it with --verbose to see where.",
                NOT_DONE,
            )
    return outcome.code


def _check_locations(given: argparse.Namespace) -> None:
    """Refuse locations with a blank end, which are others than those that are meant."""
    for name in _LOCATIONS:
        if isinstance(text := getattr(given, name, None), str):
            check_ends(f"--{name.replace('_', '-')}", text)


def parser(only: str | None = None) -> Parser:
    """Build the parser of all commands.

    Args:
        only: The one command to add, so that the modules of no other are imported.
    """
    shared = Parser(add_help=False)
    shared.add_argument("--json", action="store_true", help="write JSON, for programs")
    loudness = shared.add_mutually_exclusive_group()
    loudness.add_argument("--quiet", action="store_true", help="do not tell each step")
    loudness.add_argument("--verbose", action="store_true", help="tell everything")
    found = Parser(
        prog="cloudfiles",
        description="Files landing in storage: find them, be notified of them; look at a state and "
        "its schemas.",
        epilog=_EPILOG,
    )
    found.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = found.add_subparsers(title="commands", required=True, metavar="command")
    for place in COMMANDS.values() if only is None else [COMMANDS[only]]:
        name, _, function = place.partition(":")
        module = importlib.import_module(f"airflow_cloudfiles.commands.{name}")
        getattr(module, function or "add_to")(commands, shared)
    for each in parsers_of_streams(found):
        _add_names(each)
    found.set_defaults(program=found, all_streams=_all_streams)
    return found


_OPENED = ("source", "checkpoint_location", "target", "events_location")
"""Arguments that are locations which a command opens."""


def parsers_of_streams(found: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield the parsers of the commands and actions that open a location."""
    for action in found._actions:  # noqa: SLF001 - argparse has no other way
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for each in action.choices.values():
                yield from parsers_of_streams(each)
    if any(action.dest in _OPENED for action in found._actions):  # noqa: SLF001
        yield found


def _add_names(found: argparse.ArgumentParser) -> None:
    """Add what names a stream, and a connection."""
    stream = found.add_argument_group("a stream by its name, instead of its locations")
    stream.add_argument(
        "--stream",
        metavar="NAME",
        help="a stream of --streams-file; without one, a task of Airflow's: dag_id/task_id",
    )
    stream.add_argument(
        "--streams-file",
        metavar="YAML",
        default=os.environ.get(STREAMS_FILE) or None,
        help=f"the file of streams (default: the environment variable {STREAMS_FILE})",
    )
    stream.add_argument(
        "--conn-id", metavar="ID", help="a connection of Airflow's that reaches the locations"
    )


def _know_stream(found: argparse.ArgumentParser, texts: Sequence[str]) -> None:
    """Fill in what is known of the stream that the arguments name, and how its cloud is reached.

    What is given beside it stays.
    """
    early = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    _add_names(early)
    try:
        given, _ = early.parse_known_args(texts)
    except argparse.ArgumentError:
        return  # the parser of the command says what is wrong
    if not given.stream and not given.conn_id:
        return
    with redirect_stdout(sys.stderr):  # Airflow logs to stdout when it is imported
        from airflow_cloudfiles import named_streams  # noqa: PLC0415 - few commands need it

        access = named_streams.access_of(given.conn_id) if given.conn_id else None
        if given.stream:
            stream = named_streams.find(given.stream, given.streams_file)
            access = access or stream.access
            for each in parsers_of_streams(found):
                _fill(each, stream)
    if access is not None:
        os.environ.update(to_environment(access))


def _all_streams(path: str | None) -> Sequence[NamedStream]:
    """Find the streams of a file, or of Airflow."""
    from airflow_cloudfiles import named_streams  # noqa: PLC0415 - few commands need it

    return named_streams.in_airflow() if path is None else named_streams.in_file(path)


def _fill(found: argparse.ArgumentParser, stream: NamedStream) -> None:
    """Make what is known of a stream the defaults of a command."""
    known: dict[str, Any] = {**stream.arguments, "option": list(stream.options.items())}
    filled = [action for action in found._actions if action.dest in known]  # noqa: SLF001
    found.set_defaults(**{action.dest: known[action.dest] for action in filled})
    for action in filled:
        action.required = False
    for group in found._mutually_exclusive_groups:  # noqa: SLF001
        if any(action in filled for action in group._group_actions):  # noqa: SLF001
            group.required = False


class _Printable(logging.Formatter):
    """What is logged, with nothing in it that a terminal obeys but our colors."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record."""
        is_problem, is_caution = (
            record.levelno >= level for level in (logging.ERROR, logging.WARNING)
        )
        tone: Tone | None = "problem" if is_problem else "caution" if is_caution else None
        return colored(printable(super().format(record), but=_LAYOUT), tone, sys.stderr)


@contextmanager
def _log_to_stderr(given: argparse.Namespace) -> Iterator[None]:
    """Show what this package logs in this block, and nothing of the libraries."""
    level = logging.DEBUG if given.verbose else logging.WARNING if given.quiet else logging.INFO
    handler = logging.StreamHandler()
    handler.setFormatter(_Printable())
    handler.setLevel(level)
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(min(level, before or level))
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


def _write(outcome: Outcome, *, as_json: bool) -> None:
    lines = outcome.lines
    if as_json and (outcome.value is not None or lines is None):
        lines = [json.dumps(outcome.value, indent=1, ensure_ascii=True)]
    elif lines is None:
        lines = [outcome.text.rstrip("\n")]
    try:
        for line in lines:
            text, tone = (line.text, line.tone) if isinstance(line, ColoredLine) else (line, None)
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
