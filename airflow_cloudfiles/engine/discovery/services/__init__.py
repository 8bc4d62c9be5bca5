"""Set up what a source needs before notifications of its files arrive in a queue.

`set_up_notifications` makes it, `list_notifications` shows it, `tear_down_notifications` removes
it: a queue, the settings of the bucket, and whatever the cloud needs between the two.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.discovery.services.base import (
        CloudScope,
        NotificationServices,
        Part,
        list_notifications,
        set_up_notifications,
        tear_down_notifications,
    )

__all__ = [
    "CloudScope",
    "NotificationServices",
    "Part",
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
