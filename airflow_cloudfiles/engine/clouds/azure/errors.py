"""Say what an error of Azure's clients means.

One sentence with the object, and what to do: never the client's own text, which is a page long and
may hold the request.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from azure.core import exceptions as azure

from airflow_cloudfiles.engine.storage.base import ObjectChangedError, ObjectNotFoundError
from airflow_cloudfiles.engine.storage.outage import (
    NO_ANSWER_IN_TIME,
    NO_IDENTITY_NOW,
    OUTCOMES,
    Call,
    Reason,
    Service,
    archived,
)

_READER, _WRITER = "Storage Blob Data Reader", "Storage Blob Data Contributor"
_ROLES: dict[Call, str] = {
    "list": _READER,
    "head": _READER,
    "get": _READER,
    "put": _WRITER,
    "delete": _WRITER,
}
"""By kind of request: the role that it takes."""

_SERVICE = Service(
    "Azure Storage",
    container="container",
    grant="the role",
    correct="Check its name and that of the account.",
)
_REFUSALS = {
    "BlobAlreadyExists",
    "ConditionNotMet",
    # Of a copy:
    "CannotVerifyCopySource",
    "SourceConditionNotMet",
    "TargetConditionNotMet",
}
"""What Azure answers when the condition of a request does not hold."""
_NO_CONTAINER = {"ContainerNotFound", "ContainerBeingDeleted", "FilesystemNotFound"}
_ARCHIVED = {"BlobArchived", "BlobBeingRehydrated"}
_NO_ANSWER = (azure.ServiceRequestTimeoutError, azure.ServiceResponseTimeoutError)


_REFUSED_TOKEN = ("AADSTS", "has not been assigned", "invalid_client", "unauthorized_client")
"""What the text of a failure has where Entra, or the metadata service, refused an identity."""


def is_identity_outage(failure: azure.AzureError) -> bool:
    """Tell whether there is no token because nothing that gives one has answered.

    A chain of credentials takes a metadata service that does not answer for one that is not there.
    """
    if not isinstance(failure, azure.ClientAuthenticationError) or failure.response is not None:
        return False
    return not any(mark in str(failure) for mark in _REFUSED_TOKEN)


def token_of(credential: Any, scope: str) -> str:
    """Fetch a token for tools that are not of Azure.

    Raises:
        ConnectionError: What gives it does not answer.
        PermissionError: It was refused.
    """
    return str(access_token(credential, scope).token)


def access_token(credential: Any, scope: str) -> Any:
    """Fetch a token, and when it ends.

    Raises:
        ConnectionError: What gives it does not answer.
        PermissionError: It was refused.
    """
    try:
        return credential.get_token(scope)
    except azure.AzureError as failure:
        error, reason = _reason(failure, error_code(failure), _WRITER)
        raise error(f"No token for Azure Storage: {reason}") from failure


def status_of(failure: azure.AzureError) -> int | None:
    """HTTP status of an error; `None` when no answer came."""
    return failure.status_code if isinstance(failure, azure.HttpResponseError) else None


def translated(failure: azure.AzureError, kind: Call, where: str) -> Exception:
    """Give the error of a store for an error of the client.

    Args:
        failure: From the client.
        kind: What was asked for.
        where: URI of what it was about.

    Returns:
        `ObjectNotFoundError`, `ObjectChangedError`, or an `OSError` of the class that fits.
    """
    code = error_code(failure)
    is_gone = status_of(failure) == HTTPStatus.NOT_FOUND and code not in _NO_CONTAINER
    if is_gone and kind != "list":
        return ObjectNotFoundError(where)
    if code in _REFUSALS:
        return ObjectChangedError(where)
    if code in _ARCHIVED:
        return archived(f"{where} {OUTCOMES[kind]}", "Archive")
    error, reason = _reason(failure, code, _ROLES[kind])
    return error(f"{where} {OUTCOMES[kind]}: {reason}")


def error_code(failure: azure.AzureError) -> str:
    """Give Azure's code of an error, else the status, else the kind of failure."""
    code = getattr(failure, "error_code", None)
    if code is not None:
        return str(getattr(code, "value", code))
    status = status_of(failure)
    if status is not None:
        return f"status {status}"
    cause = failure.inner_exception
    return type(failure if cause is None else cause).__name__


def _reason(failure: azure.AzureError, code: str, role: str) -> Reason:
    """Say why a request failed and what to do, with the class that programs react to."""
    status = status_of(failure)
    if code in _NO_CONTAINER:
        return _SERVICE.no_container()
    if isinstance(failure, azure.ClientAuthenticationError):
        is_outage = is_identity_outage(failure)
        return (ConnectionError, NO_IDENTITY_NOW) if is_outage else _SERVICE.denied(code, role)
    if isinstance(failure, _NO_ANSWER):
        return NO_ANSWER_IN_TIME
    if isinstance(failure, azure.DecodeError):
        return ConnectionError, "the answer broke off. Try again."
    if status is None:
        return ConnectionError, (
            f"the account did not answer ({code}). Check its name and the network, and try again."
        )
    return _SERVICE.reason(status, code, role)
