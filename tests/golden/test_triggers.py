"""Triggers that an older version of the package has stored are made again by this one."""

from __future__ import annotations

import importlib
import json
from typing import Any

import pytest

from tests.golden import triggers

pytestmark = [pytest.mark.airflow, pytest.mark.slow]
by_name = pytest.mark.parametrize("name", triggers.TRIGGERS)


def _made(stored: dict[str, Any]) -> Any:
    """What the triggerer does."""
    module, _, name = stored["classpath"].rpartition(".")
    return getattr(importlib.import_module(module), name)(**stored["kwargs"])


@by_name
def test_a_stored_trigger_is_made_again(name: str) -> None:
    stored = json.loads((triggers.FOLDER / name).read_text(encoding="ascii"))
    assert _made(stored).serialize() == (stored["classpath"], stored["kwargs"])


@by_name
def test_a_trigger_is_still_stored_the_same(name: str) -> None:
    stored = (triggers.FOLDER / name).read_text(encoding="ascii")
    assert triggers.written()[name] == stored


@by_name
def test_an_argument_of_a_newer_version_is_refused_by_name(name: str) -> None:
    stored = json.loads((triggers.FOLDER / name).read_text(encoding="ascii"))
    stored["kwargs"]["from_a_newer_version"] = 1
    with pytest.raises(TypeError, match="from_a_newer_version"):
        _made(stored)
