"""Set up what a source needs before notifications of its files arrive in a queue.

`set_up_notifications` makes it, `list_notifications` shows it, `tear_down_notifications` removes
it: a queue, the settings of the bucket, and whatever the cloud needs between the two.
"""

from __future__ import annotations

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
