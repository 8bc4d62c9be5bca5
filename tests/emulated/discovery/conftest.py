"""Shared by the discovery tests: queues that are not waited for long."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    """An emulator is one server: its queue is empty when it says so."""
    from airflow_cloudfiles.engine.clouds.aws.queue import SqsQueue
    from airflow_cloudfiles.engine.clouds.azure import queue as azure_queue
    from airflow_cloudfiles.engine.clouds.gcp.queue import PubSubQueue
    from airflow_cloudfiles.engine.extensions.event_log import collector

    monkeypatch.setattr(collector, "FRESH_SECONDS", -1000.0)  # each discovery drains the queue
    monkeypatch.setattr(SqsQueue, "wait_seconds", 0)
    monkeypatch.setattr(PubSubQueue, "wait_seconds", 1.0)
    monkeypatch.setattr(azure_queue, "_PAUSE_SECONDS", 0.01)
