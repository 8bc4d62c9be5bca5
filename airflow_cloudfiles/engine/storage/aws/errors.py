"""What does a failure of Amazon's client mean?

Whatever a client of AWS raises becomes an `OSError` with a sentence: what could not be done, where,
and what to do. The failure itself is its cause.
"""

from __future__ import annotations

from http import HTTPStatus

from botocore.exceptions import (  # noqa: TID253 - for modules that import the client anyway
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    FlexibleChecksumError,
    HTTPClientError,
    IncompleteReadError,
    MetadataRetrievalError,
    NoCredentialsError,
    PartialCredentialsError,
    ProxyConnectionError,
    ReadTimeoutError,
    SSLError,
    TokenRetrievalError,
)
from botocore.exceptions import (  # noqa: TID253 - as above
    ConnectionError as NoConnectionError,
)

_CREDENTIALS = (
    NoCredentialsError,
    PartialCredentialsError,
    CredentialRetrievalError,
    TokenRetrievalError,
)
_NO_ANSWER = (
    HTTPClientError,
    NoConnectionError,
    IncompleteReadError,
    FlexibleChecksumError,
    MetadataRetrievalError,
)
_BAD_CREDENTIALS = {
    "ExpiredToken",
    "ExpiredTokenException",
    "InvalidAccessKeyId",
    "InvalidClientTokenId",
    "InvalidToken",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
}
_DENIED = {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}


def error_code(failure: ClientError) -> str:
    """Give the code of an answer such as `NoSuchKey`; its number where it has no body."""
    return str(failure.response.get("Error", {}).get("Code", ""))


def error_status(failure: ClientError) -> int:
    """Give the HTTP status of an answer; 0 when there is none."""
    return int(failure.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def readable(failure: BotoCoreError | ClientError, what: str, permission: str) -> OSError:
    """Explain a failure.

    Args:
        failure: From botocore.
        what: What could not be done, to what: `s3://bucket/key could not be read`.
        permission: What the identity has to be allowed, such as `s3:GetObject`.

    Returns:
        `PermissionError`, `TimeoutError`, `ConnectionError`, or a plain `OSError`.
    """
    if isinstance(failure, ClientError):
        return _of_answer(failure, what, permission)
    if isinstance(failure, _CREDENTIALS):
        return PermissionError(
            f"{what}: no credentials for AWS that can be used were found ({failure}). Name a "
            f"connection, or give this machine an identity."
        )
    if isinstance(failure, ConnectTimeoutError | ReadTimeoutError):
        return TimeoutError(
            f"{what}: the server did not answer in time, in several tries. Try again."
        )
    if isinstance(failure, SSLError | ProxyConnectionError):
        return ConnectionError(
            f"{what}: no secure connection could be made ({failure}). Check the endpoint, the "
            f"proxy and the certificates."
        )
    if isinstance(failure, _NO_ANSWER):
        return ConnectionError(
            f"{what}: the connection failed, in several tries ({failure}). Try again."
        )
    return OSError(f"{what}: {failure}")


def _is_busy(code: str, status: int) -> bool:
    """Whether an answer is one of a service that is throttling or failing, whatever its status."""
    return (
        status >= HTTPStatus.INTERNAL_SERVER_ERROR
        or status in {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.REQUEST_TIMEOUT}
        or any(word in code for word in ("Throttl", "SlowDown", "RequestTimeout", "LimitExceeded"))
    )


def _of_answer(failure: ClientError, what: str, permission: str) -> OSError:
    """Explain an answer that is an error."""
    code, status = error_code(failure), error_status(failure)
    text = failure.response.get("Error", {}).get("Message", "")
    if code in _BAD_CREDENTIALS:
        return PermissionError(
            f"{what}: AWS refuses the credentials ({code}). Renew or correct them in the "
            f"connection or the environment."
        )
    if _is_busy(code, status):
        return ConnectionError(
            f"{what}: the service failed, in several tries ({code}: {text}). Try again later."
        )
    if status in _DENIED:
        return PermissionError(
            f"{what}: access is denied ({code}: {text}). Grant the identity the permission "
            f"{permission} there."
        )
    return OSError(f"{what}: {code}: {text}")
