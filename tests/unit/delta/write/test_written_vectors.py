"""Vectors that are written are read back, by another implementation as well."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from airflow_cloudfiles.engine.tables.delta.read.actions import DeletionVector
from airflow_cloudfiles.engine.tables.delta.read.deletion_vectors import deleted_rows
from airflow_cloudfiles.engine.tables.delta.write.deletion_vectors import encode
from tests.support.delta_tables import base85
from tests.support.laws import examples

FEW = st.sets(st.integers(0, 2**34), min_size=1)
RANGES = st.lists(
    st.tuples(st.integers(0, 2**33), st.integers(1, 9000), st.integers(1, 3)),
    min_size=1,
    max_size=3,
).map(lambda found: {first + step * each for first, count, step in found for each in range(count)})


@pytest.mark.law
@settings(max_examples=examples(200), deadline=None)
@given(rows=st.one_of(FEW, RANGES))
def test_a_vector_is_read_back_by_two_implementations(rows: set[int]) -> None:
    ordered = sorted(rows)
    content = encode(np.array(ordered, np.int64))
    assert list(BitMap64.deserialize(content[4:])) == ordered
    vector = DeletionVector("i", base85(content), len(content), len(ordered))
    assert deleted_rows(vector, lambda _at, _length: b"").tolist() == ordered
