"""What kinds of numpy arrays are there?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

Bools = np.ndarray[Any, np.dtype[np.bool_]]
Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Int8s = np.ndarray[Any, np.dtype[np.int8]]
Int32s = np.ndarray[Any, np.dtype[np.int32]]
Int64s = np.ndarray[Any, np.dtype[np.int64]]
Positions = np.ndarray[Any, np.dtype[np.int64]]
"""Indices into another array, or into the bytes of a buffer."""


def validity(valid: Bools) -> pa.Buffer:
    """An Arrow validity bitmap."""
    return pa.py_buffer(np.packbits(valid, bitorder="little"))
