"""The site is built without the network and without a warning, and needs no other host."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT
from tests.support.browser import BROWSER, DRIVER, MISSING, browser

pytestmark = pytest.mark.slow

LOADED = re.compile(
    r"<(?:script|img|iframe|source)[^>]*\ssrc=\"([^\"]+)\"|<link[^>]*\shref=\"([^\"]+)\""
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--quiet",
        "--site-dir",
        str(folder),
    ]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "https_proxy": "http://127.0.0.1:9"}
    built = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    return folder


def test_every_page_is_in_the_site(site: Path) -> None:
    docs = {page.relative_to(ROOT / "docs") for page in PAGES if page.is_relative_to(ROOT / "docs")}
    project = {Path("project", page.name.lower()) for page in PAGES if page.parent == ROOT}
    for page in docs | project:
        assert (site / page.with_suffix(".html")).is_file(), page


def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    for page in site.rglob("*.html"):
        for found in LOADED.findall(page.read_text(encoding="utf-8")):
            [target] = filter(None, found)
            assert not re.match(r"(?:[a-z]+:)?//", target), f"{page.name} loads {target}"
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\(\s*[\"']?(?:https?:)?//", sheet.read_text(encoding="utf-8"))


def test_the_public_names_are_in_the_reference(site: Path) -> None:
    import airflow_cloudfiles

    api = "".join(page.read_text(encoding="utf-8") for page in (site / "reference/api").glob("*"))
    for name in airflow_cloudfiles.__all__:
        home = airflow_cloudfiles._HOMES[name]
        assert f'id="{home}.{name}"' in api, name


def test_links_to_files_outside_of_the_site_are_text(site: Path) -> None:
    behaviors = (site / "reference/behaviors.html").read_text(encoding="utf-8")
    assert "test_defaults_are_those_of_the_documentation" in behaviors
    assert not re.search(r'href="[^"]*\.py"', behaviors)


FIRST = {
    "cloudFiles.maxFilesPerTrigger": "reference/options",
    "schema evolution": "concepts/schema-evolution",
    "exactly once": "concepts/exactly-once",
    "credentials": "how-to/connections",
    "CF302": "how-to/troubleshooting",
}
"""The page that a search begins with."""
BROKEN_NAMES = """
return [...document.querySelectorAll("td code")].filter(code => {
  const range = document.createRange();
  return [...code.childNodes].some(node => {
    range.selectNodeContents(node);
    return /^[\\w.]+$/.test(node.textContent) && range.getClientRects().length > 1;
  });
}).map(code => code.textContent)
"""
"""Script: the names in tables of which a part between dots is on two lines."""


@pytest.mark.skipif(not (BROWSER and DRIVER), reason=MISSING)
def test_a_search_without_a_server_finds_what_to_do_before_why_it_is_so(site: Path) -> None:
    with browser(site.as_uri()) as window:
        for asked in ("schema hints", "retry", "duplicate rows"):
            window.open(f"/index.html?q={asked.replace(' ', '+')}")
            found = window.hrefs("li.md-search-result__item > a")
            for_users = re.compile(rf"{site.as_uri()}/(how-to|reference)/")
            assert all(for_users.match(each) for each in found[:3]), found
            assert any("/how-to/" in each for each in found[:3]), found
        for asked, page in FIRST.items():
            window.open(f"/index.html?q={asked.replace(' ', '+')}")
            found = window.hrefs("li.md-search-result__item > a")
            assert found[0].startswith(f"{site.as_uri()}/{page}.html"), found


@pytest.mark.skipif(not (BROWSER and DRIVER), reason=MISSING)
def test_names_of_options_do_not_break_within_a_word(site: Path) -> None:
    with browser(site.as_uri()) as window:
        window.open("/reference/options.html")
        assert "cloudFiles.schemaHints" in window.text()
        assert window.evaluate(BROKEN_NAMES) == []
