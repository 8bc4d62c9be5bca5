"""Cloud Monitoring counts the messages of a Pub/Sub subscription, and delivers none.

Pub/Sub has neither a count nor a look that is no delivery. Monitoring is some minutes behind.

The identity needs the permission `monitoring.timeSeries.list` on the project (the role *Monitoring
Viewer*).

References:
    "Google Cloud metrics", `pubsub.googleapis.com/subscription/num_undelivered_messages`;
    "Method: projects.timeSeries.list".
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import google.auth
from google.auth.exceptions import GoogleAuthError
from google.auth.transport.requests import AuthorizedSession

from airflow_cloudfiles.engine.storage.cloud_errors import DENIED
from airflow_cloudfiles.engine.storage.flat_store import ClientPerProcess
from airflow_cloudfiles.engine.storage.gcp.client import (
    SCOPE,
    google_credentials,
    is_identity_outage,
    key_file,
)

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage.access import GcpAccess

ENDPOINT = "https://monitoring.googleapis.com"
_METRIC = "pubsub.googleapis.com/subscription/num_undelivered_messages"
_LOOK_BACK = timedelta(minutes=10)
"""A value is there for each minute, two minutes later."""
_TIMEOUT_SECONDS = 30


class MessageCounter:
    """Asks Cloud Monitoring how many messages a subscription has.

    Args:
        access: Credentials; `None` leaves them to the environment.
        endpoint: Address of Cloud Monitoring.
    """

    def __init__(self, access: GcpAccess | None, *, endpoint: str = ENDPOINT) -> None:
        self._access = access
        self._endpoint = endpoint
        self._sessions = ClientPerProcess(self._open, lambda: key_file(access))

    def count(self, subscription: str) -> int:
        """Give the newest count of undelivered messages; 0 where there is none.

        Args:
            subscription: `projects/<project>/subscriptions/<name>`.

        Raises:
            PermissionError: The identity may not read metrics of the project.
            ConnectionError: Monitoring did not answer.
        """
        project, _, name = subscription.removeprefix("projects/").partition("/subscriptions/")
        now = datetime.now(UTC)
        query = {
            "filter": f'metric.type="{_METRIC}" AND resource.labels.subscription_id="{name}"',
            "interval.startTime": (now - _LOOK_BACK).isoformat(),
            "interval.endTime": now.isoformat(),
        }
        where = f"{self._endpoint}/v3/projects/{project}/timeSeries"
        status, counts = HTTPStatus.UNAUTHORIZED, []
        try:
            answer = self._sessions.get().get(where, params=query, timeout=_TIMEOUT_SECONDS)
            status = answer.status_code
            if status == HTTPStatus.OK:
                series = answer.json().get("timeSeries", ())
                newest = [each["points"][0]["value"] for each in series if each.get("points")]
                counts = [int(value["int64Value"]) for value in newest]
        except (GoogleAuthError, OSError, KeyError, ValueError) as failure:  # of `requests`, too
            if isinstance(failure, GoogleAuthError) and not is_identity_outage(failure):
                raise _refused(status, subscription, project) from failure
            raise ConnectionError(
                f"Cloud Monitoring did not say how many messages {subscription} has "
                f"({type(failure).__name__}). Check the network, and try again."
            ) from failure
        if status != HTTPStatus.OK:
            raise _refused(status, subscription, project)
        return sum(counts)

    def _open(self) -> Any:
        credentials = google_credentials(self._access)
        if credentials is None:
            credentials, _ = google.auth.default(scopes=[SCOPE])
        return AuthorizedSession(credentials)  # type: ignore[no-untyped-call]


def _refused(status: int, subscription: str, project: str) -> OSError:
    """Explain the status of an answer."""
    if status in DENIED:
        return PermissionError(
            f"Not allowed to count the messages of {subscription} (status {status}). A look by a "
            f"pull would count as a delivery, after some of which its dead-letter policy takes the "
            f"messages away. Grant the identity the permission monitoring.timeSeries.list on "
            f"project {project} (the role Monitoring Viewer); or, where the subscription has no "
            f"dead-letter policy, pubsub.subscriptions.get on it (the role Pub/Sub Viewer)."
        )
    text = f"Cloud Monitoring could not count the messages of {subscription} (status {status})."
    is_passing = (
        status == HTTPStatus.TOO_MANY_REQUESTS or status >= HTTPStatus.INTERNAL_SERVER_ERROR
    )
    return ConnectionError(text) if is_passing else OSError(text)
