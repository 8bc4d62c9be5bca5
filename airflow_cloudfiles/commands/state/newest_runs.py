"""`cloudfiles runs`: the same as `cloudfiles state runs`, where people look first."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from airflow_cloudfiles.commands.state import runs

if TYPE_CHECKING:
    from airflow_cloudfiles.commands.running.outcome import Commands


def add_to(commands: Commands, shared: argparse.ArgumentParser) -> None:
    """Add the command."""
    where = argparse.ArgumentParser(add_help=False)
    where.add_argument("--checkpoint-location", metavar="URI", required=True)
    runs.add_to(commands, [shared, where])
