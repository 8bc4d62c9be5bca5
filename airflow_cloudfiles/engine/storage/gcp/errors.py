"""What does an error of Google's storage client mean?

One sentence with the object, and what to do: never the client's own text, which holds the request.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Literal

from google.api_core.exceptions import GoogleAPICallError, RetryError
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError, TransportError

from airflow_cloudfiles.engine.storage.base import ObjectNotFoundError

Call = Literal["list", "head", "get", "put", "delete"]

_CALLS: dict[str, tuple[str, str]] = {
    "list": ("could not be listed", "storage.objects.list"),
    "head": ("could not be looked at", "storage.objects.get"),
    "get": ("could not be read", "storage.objects.get"),
    "put": ("could not be written", "storage.objects.create and storage.objects.delete"),
    "delete": ("could not be deleted", "storage.objects.delete"),
}
"""By kind of request: what did not work, and the permission that it takes."""

_DENIED = {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}
_BUSY = {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.INTERNAL_SERVER_ERROR, HTTPStatus.BAD_GATEWAY}
_BUSY |= {HTTPStatus.SERVICE_UNAVAILABLE}
_LATE = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.GATEWAY_TIMEOUT}


def translated(failure: Exception, kind: Call, where: str) -> Exception:
    """Say in a sentence what happened to a request.

    Args:
        failure: From the client.
        kind: What was asked for.
        where: URI of what it was about.

    Returns:
        `ObjectNotFoundError`, or an `OSError` of the class that fits.
    """
    outcome, permission = _CALLS[kind]
    cause: BaseException = failure
    while isinstance(cause, RetryError) and cause.cause is not None:
        cause = cause.cause
    status = cause.code if isinstance(cause, GoogleAPICallError) else None
    if status == HTTPStatus.NOT_FOUND and kind not in {"list", "put"}:
        return ObjectNotFoundError(where)
    error, reason = _reason(cause, status, permission)
    return error(f"{where} {outcome}: {reason}")


def _reason(cause: BaseException, status: int | None, needed: str) -> tuple[type[OSError], str]:
    """Why a request failed and what to do, with the class that says it to programs."""
    name = type(cause).__name__
    found: tuple[type[OSError], str] = (
        OSError,
        f"Cloud Storage refused the request (status {status}).",
    )
    if status == HTTPStatus.NOT_FOUND:
        found = (FileNotFoundError, "there is no such bucket. Check its name.")
    elif status in _DENIED:
        found = (
            PermissionError,
            f"not allowed (status {status}). Give the identity the permission {needed} on it.",
        )
    elif status in _LATE or "Timeout" in name:
        found = (TimeoutError, "no answer in time. Try again.")
    elif status in _BUSY:
        found = (
            ConnectionError,
            f"Cloud Storage is busy or failing (status {status}). Try again later.",
        )
    elif status is None:
        found = _without_answer(cause)
    return found


def _without_answer(cause: BaseException) -> tuple[type[OSError], str]:
    """Why there is no answer of Cloud Storage at all."""
    name = type(cause).__name__
    if isinstance(cause, DefaultCredentialsError):
        return (
            PermissionError,
            "no Google credentials here. Use a connection, or application default credentials.",
        )
    if isinstance(cause, GoogleAuthError) and not isinstance(cause, TransportError):
        return PermissionError, f"Google did not accept the credentials ({name}). Renew them."
    if name == "TooManyRedirects":
        reason = (
            "the answer was a redirect, which is not followed. Check the storage_endpoint of the "
            "connection, or STORAGE_EMULATOR_HOST."
        )
        return PermissionError, reason
    return (
        ConnectionError,
        f"no answer, or one that broke off ({name}). Check the network, and try again.",
    )
