"""`cloudfiles runs`: the same as `cloudfiles state runs`, where people look first."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from airflow_cloudfiles.commands.running.outcome import add_checkpoint_location
from airflow_cloudfiles.commands.state import runs

if TYPE_CHECKING:
    from airflow_cloudfiles.commands.running.outcome import Commands


def add_to(commands: Commands, shared: argparse.ArgumentParser) -> None:
    """Add the command."""
    where = argparse.ArgumentParser(add_help=False)
    add_checkpoint_location(where)
    runs.add_to(commands, [shared, where])
