"""Which files are input: patterns, names, times; the same by listing and by notification."""

from __future__ import annotations

import re
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cloudfiles.engine.discovery.filters import FileFilter, is_hidden
from airflow_cloudfiles.engine.discovery.globs import SourcePattern, compile_name, split_pattern
from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
from airflow_cloudfiles.engine.storage import open_store

ALL = DiscoveryOptions()


def accepts(path: str, key: str, **options: object) -> bool:
    """Whether the file `key` is input of a source path."""
    root, pattern = split_pattern(path)
    below = key.removeprefix(root.rstrip("/") + "/")
    if below == key:
        return False
    return FileFilter(root, pattern, DiscoveryOptions(**options)).accepts(FileEntry(below, 1, 0))


@pytest.mark.parametrize(
    ("path", "key", "default", "strict"),
    [
        ("/a/b", "/a/b/c/file.txt", True, True),
        ("/a/b", "/a/b_dir/c/file.txt", False, False),
        ("/a/b", "/a/b.txt", False, False),
        ("/a/b/", "/a/b.txt", False, False),
        ("/a/*/c/", "/a/b/c/d/file.txt", True, True),
        ("/a/*/c/", "/a/b/x/y/c/file.txt", True, False),
        ("/a/*/c", "/a/b/c_file.txt", True, False),
        ("/a/*/c/", "/a/b/c_file.txt", True, False),
        ("/a/*/c", "/a/b/cookie/file.txt", True, False),
        ("/a/*/d/", "/a/b/c/d/file.txt", True, False),
        ("/a/b*", "/a/b.txt", True, True),
        ("/a/b*", "/a/b/file.txt", True, True),
        ("/a/{0.txt,1.txt}", "/a/0.txt", True, True),
        ("/a/*/{0.txt,1.txt}", "/a/0.txt", False, False),
        ("/a/b/[cde-h]/i/", "/a/b/c/i/file.txt", True, True),
    ],
)
def test_the_table_of_globbers(path, key, default, strict):  # B90
    assert accepts(path, key) is default
    assert accepts(path, key, use_strict_globber=True) is strict


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("*", ["", "a", "a.b"], ["a/b"]),
        ("a?c", ["abc", "a.c", "aéc"], ["ac", "abbc", "a/c"]),
        ("[a-c]x", ["ax", "bx", "cx"], ["dx", "x", "-x"]),
        ("[^a-c]x", ["dx", "-x"], ["ax", "/x"]),
        ("[!a]x", ["bx"], ["ax"]),
        (r"[\]a]x", ["]x", "ax"], ["bx"]),
        ("[a.b]", ["a", ".", "b"], ["c"]),
        ("[&&a]", ["&", "a"], ["b"]),
        ("[[a]", ["[", "a"], ["b"]),
        ("{a,b*}.json", ["a.json", "b1.json"], ["c.json", "a,b.json"]),
        ("{a,{b,c}d}", ["a", "bd", "cd"], ["d", "ad"]),
        ("a,b}]", ["a,b}]"], ["a"]),
        (r"\*\{\\", ["*{\\"], ["x{\\"]),
        ("a.b(c)+|$^", ["a.b(c)+|$^"], ["axb(c)+|$^"]),
        ("*.png", ["x.png", ".png"], ["x.PNG", "x.png.gz"]),
        ("*{abc,b}*c", ["abc", "abcc", "bc"], ["ab", "cb"]),
        ("{a,}{,b}", ["", "a", "b", "ab"], ["ba"]),
        ("?\udcff*", ["x\udcff", "\n\udcff\n"], ["\udcff"]),
        ("[+-0]x", ["0x", "+x"], ["/x", "1x"]),
    ],
)
def test_patterns_are_hadoop_s(pattern, matching, others):
    found = compile_name(pattern)
    assert [name for name in [*matching, *others] if found.matches(name)] == matching


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("*a" * 45 + "*b", "a" * 1024),
        ("{/,a}" * 200 + "b", "a" * 1024),
        ("{*,a}" * 100 + "b", "a" * 1024),
        ("*{a,a}" * 100 + "b", "a" * 1024),
        ("{" * 150 + "a" + ",a}" * 150 + "b", "a" * 1024),
        ("?*" * 100 + "[^a]", "a" * 1024),
        ("{a,aa}" * 200 + "b", "a" * 1024),
    ],
)
def test_no_pattern_makes_matching_slow(pattern, name):
    """With a regular expression each of these takes longer than the universe is old."""
    assert not compile_name(pattern).matches(name)
    assert not SourcePattern(pattern).matches(name)
    strict = SourcePattern(pattern, strict=True)
    assert not strict.matches(f"{name}/{name}")
    assert not strict.may_hold(f"c/{name}")


def test_what_a_pattern_keeps_of_names_is_bounded():
    glob = compile_name("*[^x]*a*")
    for start in range(0x100, 0x100 + 150_000, 50):
        name = "".join(map(chr, range(start, start + 50)))
        assert not glob.matches(name)
        assert glob.matches(name + "a")


@pytest.mark.parametrize("pattern", ["[a", "x[", "{a,b", "a\\", "[]", "[z-a]", "[^]"])
def test_a_pattern_that_cannot_be_read_is_refused(pattern):
    with pytest.raises(OptionError, match="cannot be read"):
        compile_name(pattern)
    with pytest.raises(OptionError, match="cannot be read"):
        split_pattern(f"/data/*{pattern}")


@pytest.mark.parametrize(
    ("path", "root", "pattern"),
    [
        ("/data/in", "/data/in", None),
        ("/data/in/", "/data/in/", None),
        ("/data/*/in/", "/data", "*/in"),
        ("/data/2024-*", "/data", "2024-*"),
        ("/*", "/", "*"),
        ("*.json", ".", "*.json"),
        ("in/*.json", "in", "*.json"),
        ("s3://bucket/*", "s3://bucket", "*"),
        ("s3://bucket/a/{b,c/d}/e", "s3://bucket/a", "{b,c/d}/e"),
        ("s3://bucket/a//b*", "s3://bucket/a", "/b*"),
        ("/data//b*", "/data", "b*"),
        ("file:///*", "file:///", "*"),
        (r"/data/\[x\]/in", "/data/[x]/in", None),
        (r"/data/\[x\]/*", "/data/[x]", "*"),
        (r"/data/a\*b*", "/data", r"a\*b*"),
        ("file:///data/[ab]", "file:///data", "[ab]"),
        ("abfss://c@a.dfs.core.windows.net/x?", "abfss://c@a.dfs.core.windows.net", "x?"),
    ],
)
def test_the_folder_before_a_pattern_is_what_is_listed(path, root, pattern):
    assert split_pattern(path) == (root, pattern)


def test_a_pattern_in_the_name_of_a_bucket_is_refused():
    with pytest.raises(OptionError, match="bucket"):
        split_pattern("s3://buck*/x")


def test_a_pattern_tells_how_keys_begin():
    assert SourcePattern("2024-*/x").prefix == "2024-"
    assert SourcePattern(r"a\*b/c?").prefix == "a*b/c"
    assert SourcePattern("{a,b}").prefix == ""


@pytest.mark.parametrize(
    ("name", "hidden"),
    [
        ("a.json", False),
        ("_SUCCESS", True),
        ("_temporary", True),
        ("_x=1", False),
        ("x=_1", False),
        (".part.crc", True),
        (".x=1", True),
        ("a.json._COPYING_", True),
        ("a._COPYING_.json", False),
        ("a_b", False),
        ("", False),
        ("2026_$folder$", True),
        ("a_$folder$.json", False),
    ],
)
def test_the_hidden_rule_is_spark_s(name, hidden):  # B91
    assert is_hidden(name) is hidden


def test_hidden_and_excluded_folders_hide_what_is_in_them():  # B91
    wanted = FileFilter("/in", None, ALL, ["state", None, "deep/tab"])
    names = ["a", "x/_z/y", "_p=1/a", "state/x", "state2/x", "deep/tab/x", "deep/tab", "d/.x/y/z"]
    assert [n for n in names if wanted.accepts(FileEntry(n, 1, 0))] == ["a", "_p=1/a", "state2/x"]
    assert wanted.rejected == {"hidden name": 2, "checkpoint, schemas or target": 3}


def test_the_source_itself_cannot_be_left_out():
    with pytest.raises(OptionError, match="source folder itself"):
        FileFilter("/in", None, ALL, [""])


def test_path_glob_filter_looks_at_the_name_only():  # B89
    assert accepts("/in", "/in/deep/x.png", path_glob_filter="*.png")
    assert not accepts("/in", "/in/x.png/y.jpg", path_glob_filter="*.png")
    assert accepts("/in/*/b", "/in/a/b/x.png", path_glob_filter="*.png")


def test_modified_after_and_before_are_exclusive():  # B92
    wanted = FileFilter("/in", None, DiscoveryOptions(modified_after_us=10, modified_before_us=20))
    assert [t for t in (9, 10, 11, 19, 20) if wanted.accepts(FileEntry("a", 1, t))] == [11, 19]
    assert wanted.rejected == {"not after modifiedAfter": 2, "not before modifiedBefore": 1}


def test_old_files_are_left_out_and_counted():
    options = DiscoveryOptions(max_file_age_seconds=100)
    wanted = FileFilter("/in", None, options, clock=lambda: 1000.0)
    times = (899_999_999, 900_000_000, 2_000_000_000)
    assert [t for t in times if wanted.accepts(FileEntry("a", 1, t))] == [
        900_000_000,
        2_000_000_000,
    ]
    assert wanted.rejected == {"older than maxFileAge": 1}


@pytest.mark.parametrize("strict", [False, True])
def test_a_pattern_that_ends_with_a_slash_means_a_folder(strict):
    wanted = FileFilter("/in", "day=1/", DiscoveryOptions(use_strict_globber=strict))
    for key, expected in (("day=1/a", True), ("day=1/b/c", True), ("day=10/a", False)):
        assert wanted.accepts(FileEntry(key, 1, 0)) is expected
    assert not wanted.skip("day=1/b", is_folder=True)


def test_the_fingerprint_changes_with_what_is_input():
    made = [
        FileFilter("/in", None, ALL),
        FileFilter("/in", "a*", ALL),
        FileFilter("/in", "a*", DiscoveryOptions(use_strict_globber=True)),
        FileFilter("/in", None, DiscoveryOptions(path_glob_filter="*")),
        FileFilter("/in", None, DiscoveryOptions(modified_after_us=1)),
        FileFilter("/in", None, DiscoveryOptions(max_file_age_seconds=1)),
        FileFilter("/in", None, ALL, ["state"]),
    ]
    assert len({each.fingerprint for each in made}) == len(made)
    assert FileFilter("/in", None, ALL).fingerprint == made[0].fingerprint


KEYS = st.lists(
    st.lists(st.text("ab._", min_size=1, max_size=3), min_size=1, max_size=4).map("/".join),
    max_size=12,
)
PATTERNS = st.lists(
    st.sampled_from(["*", "?", "a", "b", "/", "[a-b]", "[^a]", "{a,b/a}", "{b*,a}", "_", "."]),
    min_size=1,
    max_size=7,
).map("".join)


TOKENS = {"*": "[^/]*", "?": "[^/]", "a": "a", "b": "b", "[a-b]": "[a-b]", "[^a]": "[^a/]"}
GROUPS = {"{a,b/a}": "(?:a|b/a)", "{b*,a}": "(?:b[^/]*|a)", "{a,ab}": "(?:a|ab)", "{,b}": "(?:|b)"}


@given(st.lists(st.sampled_from(sorted(TOKENS | GROUPS)), max_size=7), st.text("ab/", max_size=8))
def test_a_pattern_matches_what_its_regular_expression_does(tokens, name):
    expression = "".join({**TOKENS, **GROUPS, "/": "/"}[token] for token in tokens)
    expected = re.fullmatch(expression, name) is not None
    assert compile_name("".join(tokens)).matches(name) is expected


@given(KEYS, PATTERNS, st.booleans(), st.sampled_from([None, "a*", "*b"]))
def test_a_listing_that_leaves_out_folders_finds_what_the_filter_accepts(
    keys, pattern, strict, name
):
    store = open_store(f"memory://{uuid.uuid4().hex}")
    keys = [key for key in keys if not {".", ".."} & set(key.split("/"))]
    for key in keys:
        store.put(key, b"")
    options = DiscoveryOptions(use_strict_globber=strict, path_glob_filter=name)
    wanted = FileFilter(store.uri, pattern, options, ["a/a"])
    entries = list(store.list())
    expected = [entry.path for entry in entries if wanted.accepts(entry)]
    assert all(path.startswith(wanted.prefix) for path in expected)
    assert [entry.path for entry in store.list(wanted.prefix, skip=wanted.skip)] == expected
    listed = store.list(wanted.prefix, skip=wanted.skip_folder)
    assert [entry.path for entry in listed if wanted.accepts_in_folder(entry)] == expected
