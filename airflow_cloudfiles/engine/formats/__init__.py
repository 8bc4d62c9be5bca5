"""What is in the files? One format a file, or a few: how it is inferred, and how it is read."""

from __future__ import annotations
