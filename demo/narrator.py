"""What the demo says, and when."""

from __future__ import annotations

import time

_STARTED = time.monotonic()


def title(text: str) -> None:
    """Open a part of the story."""
    print(f"\n━━ {text}", flush=True)


def say(text: str) -> None:
    """Say what happens now, with the seconds since the start."""
    print(f"[{time.monotonic() - _STARTED:6.1f} s] {text}", flush=True)


def show(*lines: str) -> None:
    """Show evidence, indented."""
    for line in lines:
        print(f"    {line}", flush=True)
