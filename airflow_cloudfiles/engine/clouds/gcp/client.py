"""Find the credentials with which Google Cloud is reached.

Shared by Cloud Storage and Pub/Sub. One of these, the first that is there: an identity that is
asked for tokens, a service account's key as text, a file that holds one, no credentials at all,
application default credentials (the environment's own chain: a key file it names, a developer's
login, the identity of the machine).
"""

from __future__ import annotations

import json
import os
from datetime import datetime
from pathlib import Path
from typing import Any

from google.auth.credentials import AnonymousCredentials
from google.auth.exceptions import (
    DefaultCredentialsError,
    GoogleAuthError,
    InvalidOperation,
    TransportError,
)
from google.oauth2.credentials import Credentials as OAuth2Credentials
from google.oauth2.service_account import Credentials as ServiceAccountCredentials

from airflow_cloudfiles.engine.clouds.gcp.access import GcpAccess
from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.storage.identities import ask

SCOPE = "https://www.googleapis.com/auth/cloud-platform"


def key_file(access: GcpAccess | None) -> str | None:
    """Give the path of the file that credentials are read from, if they are."""
    given = access or GcpAccess()
    if given.identity or given.keyfile_json or given.anonymous:
        return None
    return given.keyfile_path or os.environ.get("GOOGLE_APPLICATION_CREDENTIALS")


def is_identity_outage(failure: GoogleAuthError) -> bool:
    """Tell whether there are no credentials because what gives them did not answer.

    Google's library takes a metadata service that does not answer for one that is not there, and
    raises for a token that could not be fetched what it raises for one that was refused.
    """
    if isinstance(failure, InvalidOperation):  # of a client that asks without credentials
        return False
    if isinstance(failure, DefaultCredentialsError):
        named = os.environ.get("GOOGLE_APPLICATION_CREDENTIALS")
        return not named and os.environ.get("NO_GCE_CHECK", "false").lower() != "true"
    is_unsent = isinstance(failure, TransportError) or isinstance(failure.__cause__, TransportError)
    return is_unsent or bool(failure.retryable)


def google_credentials(access: GcpAccess | None) -> Any:
    """Give what Google's clients take as `credentials`; nothing is contacted.

    Returns:
        The credentials; `None` leaves it to the client, which takes those of the environment.

    Raises:
        OptionError: A key cannot be read.
    """
    given = access or GcpAccess()
    if given.identity is not None:
        return _asked(given.identity, given.quota_project)
    if given.keyfile_json:
        return _of_key(given.keyfile_json, "The key in the connection")
    if given.keyfile_path:
        try:
            text = Path(given.keyfile_path).read_text(encoding="utf-8")
        except (OSError, ValueError) as failure:
            raise OptionError(
                f"The key file {given.keyfile_path} of the connection cannot be read: {failure}. "
                "It has to be on this machine."
            ) from failure
        return _of_key(text, f"The key file {given.keyfile_path}")
    if given.anonymous:
        return AnonymousCredentials()  # type: ignore[no-untyped-call]
    return None


def _asked(identity: str, quota_project: str | None) -> Any:
    """Credentials whose tokens are asked for, again before each one ends."""

    def refreshed(*_: Any, **__: Any) -> tuple[str, datetime]:
        found = ask(identity)
        return found["token"], datetime.fromisoformat(found["expiry"])

    return OAuth2Credentials(None, refresh_handler=refreshed, quota_project_id=quota_project)  # type: ignore[no-untyped-call]


def _of_key(text: str, what: str) -> Any:
    """Credentials of a key; what is wrong with it is not quoted, for it is a secret."""
    try:
        return ServiceAccountCredentials.from_service_account_info(json.loads(text), scopes=[SCOPE])  # type: ignore[no-untyped-call]
    except (ValueError, TypeError, AttributeError):  # ValueError: also what Google raises
        raise OptionError(
            f"{what} is not the key of a service account. Download it anew as JSON."
        ) from None
