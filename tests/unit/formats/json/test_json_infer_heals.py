"""The reader says what is new, inference makes it a column: they must not disagree.

Otherwise a stream would fail on a new field for ever, each retry evolving to the same schema.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cloudfiles.engine.formats.json.infer import JsonInference
from airflow_cloudfiles.engine.formats.json.reader import JsonReader, LinePiece, UnknownFields
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.schema.inference import evolve, resolve
from airflow_cloudfiles.engine.types import simple_ddl

_NAMES = st.sampled_from(["a", "A", "b", "c", "", 'q"', "\ud800", "_rescued_data", "p"])
_LEAVES = st.sampled_from([None, "", "x", True, 5, 10**30, 2.5, "2021-01-01", "\ud800"])
_VALUES = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3),
    max_leaves=6,
)
_RECORDS = st.lists(st.dictionaries(_NAMES, _VALUES, max_size=3), min_size=1, max_size=4)


def _options(typed):
    given_options = {
        "cloudFiles.format": "json",
        "cloudFiles.schemaLocation": "/schemas",
        "cloudFiles.inferColumnTypes": typed,
    }
    return CloudFilesOptions.parse(given_options, path="/landing")


def _resolved(records, options, known=None):
    inference = JsonInference(options, known)
    inference.add("\n".join(records).encode())
    return resolve(inference.result(), options=options, paths=["p=1/f.json"])[0]


def _new_fields(schema, options, piece):
    """What the reader calls new; nothing when it reads the piece."""
    try:
        JsonReader(schema, options).read([piece])
    except UnknownFields as unknown:
        return unknown.fields
    return {}


def _tolerant(record):
    """The record as a hand might write it."""
    text = json.dumps(record)
    return text if "'" in text or '\\"' in text else text.replace('"', "'")


@pytest.mark.law
@given(first=_RECORDS, later=_RECORDS, typed=st.booleans(), tolerant=st.booleans())
def test_one_retry_heals_any_new_fields(first, later, typed, tolerant):  # B46, B47
    options = _options(typed)
    current = _resolved([json.dumps(record) for record in first], options)
    lines = [_tolerant(record) if tolerant else json.dumps(record) for record in later]
    piece = LinePiece("file:///landing/p=1/f.json", "\n".join(lines).encode())
    evolved = evolve(current, _resolved(lines, options, known=current))
    found = _new_fields(current, options, piece)
    assert not found or evolved != current, f"{found} is new to {simple_ddl(current)}"
    assert not _new_fields(evolved, options, piece)


@pytest.mark.law
@given(records=_RECORDS, typed=st.booleans())
def test_what_was_inferred_from_records_has_a_column_for_all_their_fields(records, typed):
    options = _options(typed)
    lines = [json.dumps(record) for record in records]
    piece = LinePiece("file:///landing/f.json", "\n".join(lines).encode())
    assert not _new_fields(_resolved(lines, options), options, piece)
