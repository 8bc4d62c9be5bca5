"""What does an error of Google's storage client mean?

One sentence with the object, and what to do: never the client's own text, which holds the request.
"""

from __future__ import annotations

from http import HTTPStatus

from google.api_core.exceptions import GoogleAPICallError, RetryError
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError

from airflow_cloudfiles.engine.storage.base import ObjectNotFoundError
from airflow_cloudfiles.engine.storage.cloud_errors import (
    NO_ANSWER_IN_TIME,
    NO_IDENTITY_NOW,
    OUTCOMES,
    Call,
    Reason,
    Service,
)
from airflow_cloudfiles.engine.storage.gcp.client import is_identity_outage

_PERMISSIONS: dict[Call, str] = {
    "list": "storage.objects.list",
    "head": "storage.objects.get",
    "get": "storage.objects.get",
    "put": "storage.objects.create and storage.objects.delete",
    "delete": "storage.objects.delete",
}
"""By kind of request: the permission that it takes."""

_SERVICE = Service(
    "Cloud Storage", container="bucket", grant="the permission", correct="Check its name."
)


def translated(failure: Exception, kind: Call, where: str) -> Exception:
    """Give the error of a store for an error of the client.

    Args:
        failure: From the client.
        kind: What was asked for.
        where: URI of what it was about.

    Returns:
        `ObjectNotFoundError`, or an `OSError` of the class that fits.
    """
    cause: BaseException = failure
    while isinstance(cause, RetryError) and cause.cause is not None:
        cause = cause.cause
    status = cause.code if isinstance(cause, GoogleAPICallError) else None
    if status == HTTPStatus.NOT_FOUND and kind not in {"list", "put"}:
        return ObjectNotFoundError(where)
    error, reason = _reason(cause, status, _PERMISSIONS[kind])
    return error(f"{where} {OUTCOMES[kind]}: {reason}")


def _reason(cause: BaseException, status: int | None, needed: str) -> Reason:
    """Why a request failed and what to do, with the class that programs react to."""
    if status is not None:
        return _SERVICE.reason(status, f"status {status}", needed)
    if "Timeout" in type(cause).__name__:
        return NO_ANSWER_IN_TIME
    return _without_answer(cause)


def _without_answer(cause: BaseException) -> Reason:
    """Why there is no answer of Cloud Storage at all."""
    name = type(cause).__name__
    if isinstance(cause, GoogleAuthError) and is_identity_outage(cause):
        return ConnectionError, f"{NO_IDENTITY_NOW} ({name})"
    if isinstance(cause, DefaultCredentialsError):
        return (
            PermissionError,
            "no Google credentials here. Use a connection, or application default credentials.",
        )
    if isinstance(cause, GoogleAuthError):
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
