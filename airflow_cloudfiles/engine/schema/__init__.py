"""What shape are the files? Inference, hints, partitions, evolution, and the log of versions."""

from __future__ import annotations
