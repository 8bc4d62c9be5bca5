"""One canonical spelling per location."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_cloudfiles.engine.clouds.sftp.access import server_of
from airflow_cloudfiles.engine.discovery.globs import split_pattern
from airflow_cloudfiles.engine.errors import OptionError, UnsupportedOptionError
from airflow_cloudfiles.engine.storage import normalize_uri, open_store
from airflow_cloudfiles.engine.storage.uri import bucket_and_path, refuse_source_only


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
        ("s3://bucket", "s3://bucket"),
        ("S3A://bucket/", "s3://bucket"),
        ("s3n://bucket//a/../b/./%20+\n//", "s3://bucket//a/../b/./%20+\n"),
        ("gs://my.bucket_1/a b", "gs://my.bucket_1/a b"),
        ("abfss://c@a.dfs.core.windows.net/x/", "abfss://c@a.dfs.core.windows.net/x"),
        ("wasbs://c@A.blob.core.windows.net", "abfss://c@a.dfs.core.windows.net"),
        (
            "abfs://$web@a.dfs.core.usgovcloudapi.net//x",
            "abfss://$web@a.dfs.core.usgovcloudapi.net//x",
        ),
        ("sftp://host", "sftp://host"),
        ("SFTP://Sftp.Acme.com:22//in/./x/../a%20b#?/", "sftp://sftp.acme.com/in/a%20b#?"),
        ("sftp://me.too@host:02222/", "sftp://me.too@host:2222"),
        ("sftp://me@[2001:DB8::1]:22/in\n", "sftp://me@[2001:db8::1]/in\n"),
        ("sftp://host/../..", "sftp://host"),
        ("iceberg://prod/sales/orders/", "iceberg://prod/sales/orders"),
        ("ICEBERG://prod/a.b/c/t", "iceberg://prod/a/b/c/t"),
    ],
)
def test_a_location_has_one_spelling(given, canonical):
    assert normalize_uri(given) == canonical
    assert normalize_uri(canonical) == canonical


def test_a_relative_path_starts_at_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert normalize_uri("a/b") == f"file://{Path.cwd()}/a/b"
    assert normalize_uri("a:b") == f"file://{Path.cwd()}/a:b"


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "\0",
        "/a\0b",
        "file://host/a",
        "memory://",
        "memory:/",
        "iceberg://a/b",
        "iceberg:/a/b/c",
    ],
)
def test_what_is_no_location_is_refused(uri):
    with pytest.raises(OptionError):
        normalize_uri(uri)


@pytest.mark.parametrize(
    "uri",
    [
        "s3:/a",
        "s3://",
        "s3:///secret",
        "s3://id:secret@bucket/x",
        "s3://bucket?secret/x",
        "gs://se cret/x",
        "abfss://secret/x",
        "abfss://c@account/secret",
        "wasbs://c:x@y@secret.table.core.windows.net/x",
        "sftp:/secret",
        "sftp:///secret",
        "sftp://me:secret@host/in",
        "sftp://host:secret/in",
        "sftp://host:99999/secret",
        "sftp://ho st/secret",
    ],
)
def test_a_cloud_location_that_is_not_one_is_refused_and_not_quoted(uri):
    with pytest.raises(OptionError, match="is written") as refused:
        normalize_uri(uri)
    assert "secret" not in str(refused.value)


def test_an_iceberg_table_is_no_place_for_files():
    with pytest.raises(UnsupportedOptionError, match="target of an ingest only"):
        open_store("iceberg://prod/sales/orders")


def test_a_location_is_taken_apart():
    assert bucket_and_path("s3://b") == ("b", "")
    assert bucket_and_path("s3://b//x/y") == ("b", "/x/y")
    account = "c@a.dfs.core.windows.net"
    assert bucket_and_path(f"abfss://{account}/x") == (account, "x")


@pytest.mark.parametrize(
    ("uri", "parts"),
    [
        ("sftp://host/in", (None, "host", None)),
        ("sftp://me@host:2222", ("me", "host", 2222)),
        ("sftp://me@[::1]/in", ("me", "::1", None)),
    ],
)
def test_a_location_at_a_server_names_user_host_and_port(uri, parts):
    assert server_of(uri) == parts


@pytest.mark.parametrize(
    ("uri", "folder", "pattern"),
    [
        ("sftp://[::1]/in", "sftp://[::1]/in", None),
        ("sftp://[::1]:2222/in//*.json", "sftp://[::1]:2222/in", "*.json"),
        ("sftp://host/[ab]/x", "sftp://host", "[ab]/x"),
    ],
)
def test_the_brackets_of_an_address_are_no_pattern(uri, folder, pattern):
    assert split_pattern(uri) == (folder, pattern)


@pytest.mark.parametrize(
    ("uri", "sentence"),
    [
        ("hdfs://name/a", "mount the file system"),
        ("az://container/a", "abfss://container@account"),
        ("https://bucket.s3.amazonaws.com/a", "write s3://"),
        ("dbfs:/mnt/a", "Databricks"),
        ("ftp://host/a", "no storage is known for ftp:"),
    ],
)
def test_what_cannot_be_reached_is_refused_with_a_reason(uri, sentence):
    with pytest.raises(UnsupportedOptionError, match=sentence):
        normalize_uri(uri)


@pytest.mark.parametrize("uri", ["sftp://host/x", "SFTP://host/x", "s3://x--usw2-az1--x-s3/y"])
def test_what_can_be_a_source_only_is_refused_elsewhere(uri: str) -> None:
    with pytest.raises(UnsupportedOptionError, match="source"):
        refuse_source_only(uri)


@pytest.mark.parametrize("uri", ["sftp", "/data/sftp:x", "s3://bucket/sftp", "file:///sftp", ""])
def test_a_folder_may_be_named_as_a_protocol_is(uri: str) -> None:
    refuse_source_only(uri)
