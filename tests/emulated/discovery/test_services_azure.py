"""Notifications of Azure: the queue in azurite, Resource Manager as a stand-in of ours has it
(`tests/support/emulators/resource_manager.py`)."""

from __future__ import annotations

import base64
import json
import logging
import uuid
from typing import TYPE_CHECKING

import pytest

from airflow_cloudfiles.engine.discovery.services import (
    CloudScope,
    list_notifications,
    set_up_notifications,
    tear_down_notifications,
)
from airflow_cloudfiles.engine.errors import NotificationServicesError, OptionError
from tests.support.discovery.event_log_services import goes_without_a_trace
from tests.support.discovery.notified import azure_event
from tests.support.emulators import resource_manager
from tests.support.emulators.resource_manager import GROUP, SUBSCRIPTION

if TYPE_CHECKING:
    from collections.abc import Iterator

LOGGER = "airflow_cloudfiles.engine.discovery.services"
SCOPE = CloudScope(subscription_id=SUBSCRIPTION, resource_group=GROUP)


@pytest.fixture(scope="module")
def running(tmp_path_factory) -> Iterator[resource_manager.Azure]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield from resource_manager.serve(tmp_path_factory.mktemp("azure"), monkeypatch)


@pytest.fixture
def azure(running, azurite) -> resource_manager.Azure:
    running.denied.clear()
    running.add_account(azurite.account)
    return running


@pytest.fixture
def name() -> str:
    return f"t-{uuid.uuid4().hex[:12]}"


def done(services) -> list[str]:
    return [part.done for part in services.parts]


def test_what_was_set_up_is_found_and_goes_without_a_trace(azure, azurite, name):
    container = azurite.container()
    source = f"{container}/in"
    access = azurite.access
    tags = {"team": "a b"}
    made = set_up_notifications(source, name, access=access, scope=SCOPE, tags=tags)
    assert made.is_complete
    queue = f"cloudfiles-{name}"
    assert made.options == {
        "cloudFiles.useNotifications": "true",
        "cloudFiles.queueName": queue,
    }
    metadata = azurite.queue_client(queue).get_queue_properties().metadata
    assert metadata["vendor"] == "airflow-cloudfiles"
    (event,) = [each for each in azure.events.values() if each["name"] == queue]
    properties = event["properties"]
    assert properties["destination"]["properties"]["queueName"] == queue
    assert properties["filter"]["subjectBeginsWith"] == (
        f"/blobServices/default/containers/{container.split('/')[2].split('@')[0]}/blobs/in/"
    )
    (advanced,) = properties["filter"]["advancedFilters"]
    assert (advanced["operatorType"], advanced["key"]) == ("StringNotIn", "data.api")
    assert set(advanced["values"]) == {"CreateFile", "SftpCreate"}
    assert "Microsoft.Storage.BlobCreated" in properties["filter"]["includedEventTypes"]
    assert {"vendor:airflow-cloudfiles", "team:a%20b"} <= set(properties["labels"])

    writes = [each for each in azure.requests if each[0] != "GET"]
    again = set_up_notifications(source, name, access=access, scope=SCOPE)
    assert set(done(again)) == {"found"}
    assert [each for each in azure.requests if each[0] != "GET"] == writes
    (listed,) = list_notifications(container, access=access, scope=SCOPE)
    assert (listed.source, listed.name, listed.options) == (source, name, made.options)

    gone = tear_down_notifications(source, name, access=access, scope=SCOPE)
    assert done(gone) == ["removed", "removed"]
    assert not [each for each in azure.events.values() if each["name"] == queue]
    assert list_notifications(container, access=access, scope=SCOPE) == []
    twice = tear_down_notifications(source, name, access=access, scope=SCOPE)
    assert done(twice) == ["missing", "missing"]


def test_the_queue_of_an_event_log_is_made_listed_and_goes(azure, azurite, name, tmp_path):
    source = azurite.container()

    def tell(log):
        container = source.partition("://")[2].partition("@")[0]
        event = azure_event(container, "in/a", 1, account=azurite.account)
        body = base64.b64encode(json.dumps(event).encode()).decode()
        azurite.queue_client(log.description.queue["cloudFiles.queueName"]).send_message(body)

    location = str(tmp_path / "log")
    goes_without_a_trace(location, source, name, azurite.access, tell, scope=SCOPE)


def test_interrupted_after_a_step_it_is_completed_by_the_next_call(azure, azurite, name):
    source = azurite.container()
    logger = logging.getLogger(LOGGER)
    logger.setLevel(logging.INFO)

    def stop(_: logging.LogRecord) -> bool:
        raise InterruptedError

    for call, then in (
        (set_up_notifications, ["found", "created"]),
        (tear_down_notifications, ["removed", "missing"]),
    ):
        logger.addFilter(stop)
        with pytest.raises(InterruptedError):
            call(source, name, access=azurite.access, scope=SCOPE)
        logger.removeFilter(stop)
        assert done(call(source, name, access=azurite.access, scope=SCOPE)) == then


def test_a_queue_of_somebody_else_is_neither_used_nor_removed(azure, azurite, name):
    source = azurite.container()
    with azurite.queues() as queues:
        queues.create_queue(f"cloudfiles-{name}").close()
    with pytest.raises(NotificationServicesError, match="not of this set-up"):
        set_up_notifications(source, name, access=azurite.access, scope=SCOPE)
    gone = tear_down_notifications(source, name, access=azurite.access, scope=SCOPE)
    assert done(gone) == ["left", "missing"]


def test_a_name_serves_one_source(azure, azurite, name):
    container = azurite.container()
    set_up_notifications(f"{container}/a", name, access=azurite.access, scope=SCOPE)
    with pytest.raises(NotificationServicesError, match=r"it serves abfss://.*/a\."):
        set_up_notifications(f"{container}/b", name, access=azurite.access, scope=SCOPE)
    left = tear_down_notifications(f"{container}/b", name, access=azurite.access, scope=SCOPE)
    assert done(left) == ["left", "left"]


def test_an_event_subscription_that_somebody_changed_is_mended(azure, azurite, name):
    source = azurite.container()
    set_up_notifications(source, name, access=azurite.access, scope=SCOPE)
    (event,) = [each for each in azure.events.values() if name in each["name"]]
    event["properties"]["filter"]["subjectBeginsWith"] += "other/"
    (listed,) = list_notifications(source, access=azurite.access, scope=SCOPE)
    assert not listed.is_complete
    again = set_up_notifications(source, name, access=azurite.access, scope=SCOPE)
    assert done(again) == ["found", "changed"]


def test_what_cannot_be_finished_is_refused_before_anything_is_made(azure, azurite, name):
    source = azurite.container()
    with pytest.raises(OptionError, match="subscription and the resource group"):
        set_up_notifications(source, name, access=azurite.access)
    elsewhere = CloudScope(subscription_id=SUBSCRIPTION, resource_group="other")
    with pytest.raises(NotificationServicesError, match="There is no storage account"):
        set_up_notifications(source, name, access=azurite.access, scope=elsewhere)
    azure.add_account(azurite.account, tier="Premium")
    with pytest.raises(NotificationServicesError, match="premium"):
        set_up_notifications(source, name, access=azurite.access, scope=SCOPE)
    with azurite.queues() as queues:
        assert list(queues.list_queues(name_starts_with=f"cloudfiles-{name}")) == []


def test_what_is_not_allowed_is_said_in_a_sentence(azure, azurite, name):
    azure.denied.add("PUT")
    source = azurite.container()
    with pytest.raises(NotificationServicesError, match=r"lacks a role \(403\)"):
        set_up_notifications(source, name, access=azurite.access, scope=SCOPE)
    azure.denied.clear()
    again = set_up_notifications(source, name, access=azurite.access, scope=SCOPE)
    assert done(again) == ["found", "created"]
