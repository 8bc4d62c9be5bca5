"""What does a cloud's answer to a failed request mean?

A message says which request failed, on which object, why, and what to do. The text of a client is
never quoted: it may hold the request, and with it a credential. What follows from the kind of the
request and from the HTTP status is the same in every cloud and is here.
"""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import Literal

Call = Literal["list", "head", "get", "put", "delete"]
"""The kinds of requests that a store counts."""

OUTCOMES: dict[Call, str] = {
    "list": "could not be listed",
    "head": "could not be inspected",
    "get": "could not be read",
    "put": "could not be written",
    "delete": "could not be deleted",
}
"""By kind of request: what did not work."""

DENIED = {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}
_BUSY = {
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.INTERNAL_SERVER_ERROR,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
}
_LATE = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.GATEWAY_TIMEOUT}

Reason = tuple[type[OSError], str]
"""Why a request failed and what to do, with the class that programs react to."""

NO_IDENTITY_NOW = (
    "where credentials come from, such as the metadata service of this machine, did not answer. "
    "Try again. If this machine has no identity, name a connection or give it one."
)
"""Why a request could not be signed, and may be the next time."""

NO_ANSWER_IN_TIME: Reason = (TimeoutError, "the server did not answer in time. Try again.")


class ArchivedObjectError(OSError):
    """The object is in a storage class from which it has to be restored before it can be read."""


class BrokenOffError(Exception):
    """An answer ended before it was complete. The client does not repeat such a request."""


class IncompleteError(OSError):
    """An answer lacks what a file is known by; it is not repeated."""


def archived(what: str, storage_class: str) -> ArchivedObjectError:
    """Give the error of an object that is archived.

    Args:
        what: What could not be done, to what.
        storage_class: As the service calls it.
    """
    return ArchivedObjectError(
        f"{what}: it is archived (storage class {storage_class}), which no permission changes. "
        "Restore it in its store and run again when that is done, or leave it out with cloudfiles "
        "file skip. Let lifecycle rules archive files only after they were ingested."
    )


@dataclass(frozen=True, slots=True)
class Service:
    """How messages name the parts of a service.

    Attributes:
        name: Of the service.
        container: What holds the objects.
        grant: What an identity needs: a role or a permission.
        correct: What to check when the container does not exist.
    """

    name: str
    container: str
    grant: str
    correct: str

    def no_container(self) -> Reason:
        """Give the reason of a request to a container that does not exist."""
        return FileNotFoundError, f"there is no such {self.container}. {self.correct}"

    def denied(self, code: str, needed: str) -> Reason:
        """Give the reason of a request that the identity may not make."""
        return PermissionError, (
            f"access is denied ({code}). Grant the identity {self.grant} {needed} on the "
            f"{self.container}."
        )

    def reason(self, status: int | None, code: str, needed: str) -> Reason:
        """Give the reason of an answer that is an error.

        Args:
            status: Of the answer.
            code: What the service calls the error.
            needed: The role or permission that the request takes.
        """
        if status == HTTPStatus.NOT_FOUND:
            return self.no_container()
        if status in DENIED:
            return self.denied(code, needed)
        if status in _LATE:
            return NO_ANSWER_IN_TIME
        if status in _BUSY:
            return ConnectionError, f"{self.name} is busy or failing ({code}). Try again later."
        return OSError, f"{self.name} refused the request ({code})."


def broken_off(where: str, kind: Call) -> ConnectionError:
    """Give the error of a request whose answers broke off, in several tries."""
    return ConnectionError(
        f"{where} {OUTCOMES[kind]}: the answer broke off. Try again; if that does not help, check "
        f"the network and the proxies between here and the server."
    )
