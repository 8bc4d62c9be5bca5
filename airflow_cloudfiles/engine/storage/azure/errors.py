"""What does an error of Azure's clients mean?

One sentence with the object, and what to do: never the client's own text, which is a page long and
may hold the request.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Literal

from azure.core.exceptions import (  # noqa: TID253 - for modules that import the client anyway
    AzureError,
    ClientAuthenticationError,
    DecodeError,
    HttpResponseError,
    ServiceRequestTimeoutError,
    ServiceResponseTimeoutError,
)

from airflow_cloudfiles.engine.storage.base import ObjectNotFoundError

Call = Literal["list", "head", "get", "put", "delete"]

_READER, _WRITER = "Storage Blob Data Reader", "Storage Blob Data Contributor"
_CALLS: dict[str, tuple[str, str]] = {
    "list": ("could not be listed", _READER),
    "head": ("could not be looked at", _READER),
    "get": ("could not be read", _READER),
    "put": ("could not be written", _WRITER),
    "delete": ("could not be deleted", _WRITER),
}
"""By kind of request: what did not work, and the role that it takes."""

_NO_CONTAINER = {"ContainerNotFound", "ContainerBeingDeleted", "FilesystemNotFound"}
_DENIED = {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}
_BUSY = {
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.INTERNAL_SERVER_ERROR,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
}
_NO_ANSWER = (ServiceRequestTimeoutError, ServiceResponseTimeoutError)
_LATE = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.GATEWAY_TIMEOUT}


def status_of(failure: AzureError) -> int | None:
    """HTTP status of an error; `None` when no answer came."""
    return failure.status_code if isinstance(failure, HttpResponseError) else None


def translated(failure: AzureError, kind: Call, where: str) -> Exception:
    """Say in a sentence what happened to a request.

    Args:
        failure: From the client.
        kind: What was asked for.
        where: URI of what it was about.

    Returns:
        `ObjectNotFoundError`, or an `OSError` of the class that fits.
    """
    outcome, role = _CALLS[kind]
    code = error_code(failure)
    is_gone = status_of(failure) == HTTPStatus.NOT_FOUND and code not in _NO_CONTAINER
    if is_gone and kind != "list":
        return ObjectNotFoundError(where)
    error, reason = _reason(failure, code, role)
    return error(f"{where} {outcome}: {reason}")


def error_code(failure: AzureError) -> str:
    """Give Azure's code of an error, else the status, else the kind of failure."""
    code = getattr(failure, "error_code", None)
    if code is not None:
        return str(getattr(code, "value", code))
    status = status_of(failure)
    if status is not None:
        return f"status {status}"
    cause = failure.inner_exception
    return type(failure if cause is None else cause).__name__


def _reason(failure: AzureError, code: str, role: str) -> tuple[type[OSError], str]:
    """Why a request failed and what to do, with the class that says it to programs."""
    status = status_of(failure)
    found: tuple[type[OSError], str] = (OSError, f"Azure refused the request ({code}).")
    if code in _NO_CONTAINER or status == HTTPStatus.NOT_FOUND:
        found = (
            FileNotFoundError,
            "there is no such container. Check its name and that of the account.",
        )
    elif isinstance(failure, ClientAuthenticationError) or status in _DENIED:
        found = (
            PermissionError,
            f"not allowed ({code}). Give the identity the role {role} on the container.",
        )
    elif status in _LATE or isinstance(failure, _NO_ANSWER):
        found = (TimeoutError, "no answer in time. Try again.")
    elif isinstance(failure, DecodeError):
        found = (ConnectionError, "the answers broke off. Try again.")
    elif status is None:
        found = (
            ConnectionError,
            f"no answer from the account ({code}). Check its name and the network, and try again.",
        )
    elif status in _BUSY:
        found = (ConnectionError, f"the account is busy or failing ({code}). Try again later.")
    return found
