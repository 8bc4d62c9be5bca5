"""One canonical spelling per location."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_cloudfiles.engine.errors import OptionError, UnsupportedOptionError
from airflow_cloudfiles.engine.storage import normalize_uri


@pytest.mark.parametrize(
    ("given", "canonical"),
    [
        ("/a/b", "file:///a/b"),
        ("/a/b/", "file:///a/b"),
        ("//a//b///", "file:///a/b"),
        ("/a/./b/../c", "file:///a/c"),
        ("/", "file:///"),
        ("file:/a/b", "file:///a/b"),
        ("file:///a/b/", "file:///a/b"),
        ("FILE:///a", "file:///a"),
        ("file://localhost/a", "file:///a"),
        ("/a%20b", "file:///a%20b"),
        ("file:///a%20b", "file:///a%20b"),
        ("/with space+#?", "file:///with space+#?"),
        ("/a:b/c:d", "file:///a:b/c:d"),
        ("/caf\u00e9/new\nline", "file:///caf\u00e9/new\nline"),
        ("memory://x", "memory://x"),
        ("memory://x//y/", "memory://x/y"),
    ],
)
def test_a_location_has_one_spelling(given, canonical):
    assert normalize_uri(given) == canonical
    assert normalize_uri(canonical) == canonical


def test_a_relative_path_starts_at_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert normalize_uri("a/b") == f"file://{Path.cwd()}/a/b"
    assert normalize_uri("a:b") == f"file://{Path.cwd()}/a:b"


@pytest.mark.parametrize("uri", ["", "\0", "/a\0b", "file://host/a", "memory://", "memory:/"])
def test_what_is_no_location_is_refused(uri):
    with pytest.raises(OptionError):
        normalize_uri(uri)


@pytest.mark.parametrize(
    ("uri", "sentence"),
    [
        ("s3://bucket/a", "not in this version"),
        ("s3a://bucket/a", "not in this version"),
        ("gs://bucket/a", "not in this version"),
        ("abfss://c@a.dfs.core.windows.net/a", "not in this version"),
        ("hdfs://name/a", "not in this version"),
        ("dbfs:/mnt/a", "Databricks"),
        ("ftp://host/a", "no storage is known for ftp:"),
    ],
)
def test_what_cannot_be_reached_is_refused_with_a_reason(uri, sentence):
    with pytest.raises(UnsupportedOptionError, match=sentence):
        normalize_uri(uri)
