"""The architecture page shows the packages and modules that exist, and all of the engine's."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import ROOT, load_script

PAGE = ROOT / "docs/concepts/architecture.md"
ENGINE = ROOT / "airflow_cloudfiles/engine"


def test_the_picture_shows_the_contracts() -> None:
    script = load_script("generate_layers")
    text = script.PICTURE.read_text(encoding="utf-8")
    assert text == script.picture(), "run: make generate"


def test_a_layer_too_wide_for_the_picture_is_refused() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        list(load_script("generate_layers")._row(["a" * 200], 0, "", ""))


def test_every_package_and_module_of_the_engine_has_its_line() -> None:
    text = PAGE.read_text(encoding="utf-8")
    of_engine = {path.stem for path in ENGINE.iterdir() if path.suffix == ".py" or path.is_dir()}
    of_engine -= {"__init__", "__pycache__"}
    assert set(re.findall(r"`engine\.(\w+)`", text)) == of_engine


def test_every_module_that_the_walks_name_exists() -> None:
    named = re.findall(r"`(engine/[\w/]+\.py)`", PAGE.read_text(encoding="utf-8"))
    assert len(named) > 20
    assert [name for name in named if not (ENGINE.parent / name).is_file()] == []
