"""What does a source need before notifications of its files arrive in a queue?

`set_up_notifications` makes it, `list_notifications` shows it, `tear_down_notifications` removes
it: a queue, what the bucket is told, and whatever the cloud wants between the two.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.discovery.services.base import (
        NotificationServices,
        Part,
        Place,
        list_notifications,
        set_up_notifications,
        tear_down_notifications,
    )

__all__ = [
    "NotificationServices",
    "Part",
    "Place",
    "list_notifications",
    "set_up_notifications",
    "tear_down_notifications",
]


def __getattr__(name: str) -> object:
    """Import the public names on first use."""
    if name in __all__:
        return getattr(importlib.import_module(f"{__name__}.base"), name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
