"""Say what a failure of Amazon's client means.

Whatever a client of AWS raises becomes an `OSError` with a sentence: what could not be done, where,
and what to do. The failure itself is its cause.
"""

from __future__ import annotations

import os
import re
from http import HTTPStatus

from botocore import exceptions as boto

from airflow_cloudfiles.engine.storage.outage import DENIED, NO_IDENTITY_NOW, archived

_CREDENTIALS = (
    boto.NoCredentialsError,
    boto.PartialCredentialsError,
    boto.CredentialRetrievalError,
    boto.TokenRetrievalError,
)
_REFUSED_BY_AGENT = re.compile(r"non 200 response 4(?!08|29)\d\d")
"""An agent of a container that answers so has no identity for it."""
_NO_ANSWER = (
    boto.HTTPClientError,
    boto.ConnectionError,
    boto.IncompleteReadError,
    boto.FlexibleChecksumError,
    boto.MetadataRetrievalError,
)
_BAD_CREDENTIALS = {
    "ExpiredToken", "ExpiredTokenException", "InvalidAccessKeyId", "InvalidClientTokenId",
    "InvalidToken", "SignatureDoesNotMatch", "UnrecognizedClientException",
}  # fmt: skip
_NOT_AUTHORIZED = re.compile(r"not authorized to perform:? +([a-z0-9-]+:[A-Za-z0-9]+)")
_OF_KEY = re.compile(r"\bkms\b|^kms", re.IGNORECASE)


def asks_metadata_service() -> bool:
    """Tell whether credentials come from the metadata service, which may be away for a while."""
    return os.environ.get("AWS_EC2_METADATA_DISABLED", "false").lower() != "true"


def error_code(failure: boto.ClientError) -> str:
    """Give the code of an answer such as `NoSuchKey`; its number where it has no body."""
    return str(failure.response.get("Error", {}).get("Code", ""))


def error_status(failure: boto.ClientError) -> int:
    """Give the HTTP status of an answer; 0 when there is none."""
    return int(failure.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def missing_permission(failure: boto.ClientError, needed: str) -> str:
    """Give the permission that an identity lacks.

    The text of an answer names it, which may be one for another service: for the key that an object
    or a queue is encrypted with.

    Args:
        failure: An answer that denies access.
        needed: What the request takes, where the answer names nothing.
    """
    text = failure.response.get("Error", {}).get("Message", "")
    if named := _NOT_AUTHORIZED.search(text):
        return named[1]
    if _OF_KEY.search(error_code(failure)) or "ciphertext" in text.lower():
        return "kms:Decrypt (and kms:GenerateDataKey to write) on the key of KMS"
    return needed


def is_about_key(failure: boto.ClientError) -> bool:
    """Tell whether an answer is about the key of KMS that something is encrypted with."""
    return bool(_OF_KEY.search(error_code(failure)))


def readable(failure: boto.BotoCoreError | boto.ClientError, what: str, permission: str) -> OSError:
    """Explain a failure.

    Args:
        failure: From botocore.
        what: What could not be done, to what: `s3://bucket/key could not be read`.
        permission: What the identity has to be allowed, such as `s3:GetObject`.

    Returns:
        `PermissionError`, `TimeoutError`, `ConnectionError`, or a plain `OSError`.
    """
    if isinstance(failure, boto.ClientError):
        return _of_answer(failure, what, permission)
    if isinstance(failure, _CREDENTIALS):
        return _of_identity(failure, what)
    if isinstance(failure, boto.ConnectTimeoutError | boto.ReadTimeoutError):
        return TimeoutError(
            f"{what}: the server did not answer in time, in several tries. Try again."
        )
    if isinstance(failure, boto.SSLError | boto.ProxyConnectionError):
        return ConnectionError(
            f"{what}: no secure connection could be made ({failure}). Check the endpoint, the "
            f"proxy and the certificates."
        )
    if isinstance(failure, _NO_ANSWER):
        return _of_connection(failure, what)
    return OSError(f"{what}: {failure}")


def _of_connection(failure: boto.BotoCoreError, what: str) -> OSError:
    """Explain that there is no answer.

    What the client of HTTP raises by chance is not quoted: it may hold a header, with a secret.
    """
    if type(failure) is not boto.HTTPClientError:
        return ConnectionError(
            f"{what}: the connection failed, in several tries ({failure}). Try again."
        )
    cause = getattr(failure, "kwargs", {}).get("error")
    if isinstance(cause, ValueError):
        return PermissionError(
            f"{what}: HTTP does not take the request ({type(cause).__name__}). A credential or the "
            f"address has a character in it that no header may have, such as a line end."
        )
    return ConnectionError(f"{what}: the connection failed ({type(cause).__name__}). Try again.")


def _of_identity(failure: boto.BotoCoreError, what: str) -> OSError:
    """Explain that there are no credentials."""
    if _is_identity_outage(failure):
        return ConnectionError(f"{what}: no credentials for AWS ({failure}): {NO_IDENTITY_NOW}")
    return PermissionError(
        f"{what}: no credentials for AWS that can be used were found ({failure}). Name a "
        f"connection, or give this machine an identity."
    )


def _is_identity_outage(failure: boto.BotoCoreError) -> bool:
    """Tell whether credentials are missing because what gives them did not answer.

    botocore takes a metadata service that does not answer for one that is not there.
    """
    if isinstance(failure, boto.CredentialRetrievalError):
        return not _REFUSED_BY_AGENT.search(str(failure))
    return isinstance(failure, boto.NoCredentialsError) and asks_metadata_service()


def _is_busy(code: str, status: int) -> bool:
    """Tell whether an answer is one of a throttling or failing service, whatever its status."""
    return (
        status >= HTTPStatus.INTERNAL_SERVER_ERROR
        or status in {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.REQUEST_TIMEOUT}
        or any(word in code for word in ("Throttl", "SlowDown", "RequestTimeout", "LimitExceeded"))
    )


def _of_answer(failure: boto.ClientError, what: str, permission: str) -> OSError:
    """Explain an answer that is an error."""
    code, status = error_code(failure), error_status(failure)
    text = failure.response.get("Error", {}).get("Message", "")
    if code == "InvalidObjectState":
        answer: dict[str, str] = failure.response.get("Error", {})
        kind = answer.get("StorageClass") or "GLACIER or DEEP_ARCHIVE"
        tier = answer.get("AccessTier")
        return archived(what, f"{kind}, {tier}" if tier else kind)
    if code in _BAD_CREDENTIALS:
        return PermissionError(
            f"{what}: AWS refuses the credentials ({code}). Renew or correct them in the "
            f"connection or the environment."
        )
    if _is_busy(code, status):
        return ConnectionError(
            f"{what}: the service failed, in several tries ({code}: {text}). Try again later."
        )
    if status in DENIED or is_about_key(failure):
        return PermissionError(
            f"{what}: access is denied ({code}: {text}). Grant the identity the permission "
            f"{missing_permission(failure, permission)} there."
        )
    return OSError(f"{what}: {code}: {text}")
