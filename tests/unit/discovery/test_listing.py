"""A listing is complete, or it fails; and it is never of our own files."""

from __future__ import annotations

import logging
import os
import uuid

import pytest

from airflow_cloudfiles.engine.discovery.filters import FileFilter
from airflow_cloudfiles.engine.discovery.globs import split_pattern
from airflow_cloudfiles.engine.discovery.listing import directory as listing
from airflow_cloudfiles.engine.discovery.listing.directory import DirectoryListing
from airflow_cloudfiles.engine.discovery.listing.state import ListingState, load_state
from airflow_cloudfiles.engine.errors import ListingError, OptionError, SourceNotFoundError
from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.storage.local import LocalStore
from tests.support.discovery.known import MemoryRecorder
from tests.support.landing_zone import LandingZone


@pytest.fixture(params=["local", "memory"])
def source(request, tmp_path):
    if request.param == "memory":
        return open_store(f"memory://{uuid.uuid4().hex}")
    LandingZone(tmp_path / "in")
    return open_store(str(tmp_path / "in"))


def found(source, *exclude: str) -> list[str]:
    return [entry.path for entry in listing_of(source, exclude).discover()]


def listing_of(source, exclude=(), pattern=None) -> DirectoryListing:
    excluded = [source.key_of(uri) for uri in exclude]
    return DirectoryListing(source, FileFilter(source.uri, pattern, DiscoveryOptions(), excluded))


def test_everything_below_the_source_is_found_in_byte_order(source):
    for name in ("b", "a/2", "a/1", "a-1", "c/d/e/f", "_p=1/x"):
        source.put(name, b"x")
    assert found(source) == ["_p=1/x", "a-1", "a/1", "a/2", "b", "c/d/e/f"]


def test_hidden_files_and_folders_are_left_out(source):  # B91
    for name in (
        "a",
        "_SUCCESS",
        ".hidden",
        "_delta_log/0.json",
        "x/.y/z",
        "x/_z/y",
        "x/y._COPYING_",
    ):
        source.put(name, b"x")
    assert found(source) == ["a"]


def test_state_schemas_and_target_below_the_source_are_left_out(source):  # B91
    for name in ("a", "state/offsets/0", "deep/state/metadata", "state2", "tab/le/part-0", "tab/x"):
        source.put(name, b"x")
    exclude = [f"{source.uri}/{name}" for name in ("state", "deep/state/", "tab/le")]
    assert found(source, *exclude, "/somewhere/else") == ["a", "state2", "tab/x"]


def test_a_state_reached_through_a_link_is_left_out(tmp_path):
    zone = LandingZone(tmp_path / "in")
    zone.write("a")
    zone.write("state/offsets/0")
    (tmp_path / "alias").symlink_to(tmp_path / "in")
    assert found(open_store(zone.uri), str(tmp_path / "alias/state")) == ["a"]
    assert found(open_store(str(tmp_path / "alias")), zone.uri + "/state") == ["a"]


def test_the_source_itself_cannot_be_the_state_or_the_target(source):
    with pytest.raises(OptionError, match="source folder itself"):
        found(source, source.uri + "/")


def test_a_location_above_the_source_leaves_everything_in(tmp_path):
    zone = LandingZone(tmp_path / "in")
    zone.write("a")
    assert found(open_store(zone.uri), str(tmp_path)) == ["a"]


def test_a_source_that_is_missing_or_a_file_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    for name in ("none", "file"):
        with pytest.raises(
            SourceNotFoundError, match=f"{tmp_path}/{name} does not exist or is not"
        ):
            found(open_store(str(tmp_path / name)))


def test_a_folder_with_the_name_of_a_pattern_is_found_when_it_is_escaped(source):
    for name in ("[2024]/a", "[2024]/b/c", "x/y"):
        source.put(name, b"x")
    root, pattern = split_pattern(f"{source.uri}/[2024]")
    with pytest.raises(SourceNotFoundError, match="write a backslash"):
        list(listing_of(open_store(root), pattern=pattern).discover())
    root, pattern = split_pattern(f"{source.uri}/\\[2024]")
    assert pattern is None
    assert found(open_store(root)) == ["a", "b/c"]


def test_a_pattern_that_matches_nothing_yet_is_no_mistake(source):
    source.put("x/y", b"x")
    assert list(listing_of(source, pattern="2024*").discover()) == []


class _DyingStore(LocalStore):
    """A disk that dies while it is listed."""

    def list(self, *args, **kwargs):
        yield next(super().list(*args, **kwargs))
        raise OSError(5, "Input/output error", "somewhere/below")


def test_a_listing_that_breaks_off_is_an_error_that_names_the_place(tmp_path):
    LandingZone(tmp_path).write("a")
    files = listing_of(_DyingStore(str(tmp_path))).discover()
    assert next(files).path == "a"
    with pytest.raises(ListingError, match="somewhere/below") as caught:
        next(files)
    assert caught.value.is_retryable


def test_a_source_that_goes_while_it_is_listed_is_not_empty(tmp_path):
    """As when what is mounted there goes: nothing may rest on having listed it in full."""
    source, state = tmp_path / "in", open_store(f"memory://{uuid.uuid4().hex}")
    source.mkdir()

    class Going(LocalStore):
        def list(self, *args, **kwargs):
            source.rmdir()
            return super().list(*args, **kwargs)

    wanted = FileFilter(str(source), None, DiscoveryOptions())
    with pytest.raises(SourceNotFoundError):
        DirectoryListing(Going(str(source)), wanted, state=state).run(MemoryRecorder())
    assert load_state(state) == ListingState()


def test_a_long_listing_says_how_far_it_is(source, caplog, monkeypatch):
    monkeypatch.setattr(listing, "PROGRESS_SECONDS", 0.0)
    source.put("a", b"")
    source.put("b", b"")
    with caplog.at_level(logging.INFO, logger=listing.__name__):
        found(source)
    assert f"Listing {source.uri}: 2 files so far" in caplog.text


def test_names_that_are_not_utf8_are_found(tmp_path):
    (tmp_path / "in").mkdir()
    with open(os.fsencode(tmp_path) + b"/in/\xff\xfe.json", "w"):  # noqa: PTH123 - bytes path
        pass
    assert found(open_store(str(tmp_path / "in"))) == ["\udcff\udcfe.json"]
