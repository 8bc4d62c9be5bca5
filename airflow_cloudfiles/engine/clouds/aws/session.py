"""Give a client of AWS the identity with which it signs its requests.

The same sessions serve S3, SQS, SNS and EventBridge. Clients may be used by many threads, sessions
may not; so clients are made under a lock, and one is kept for each service and access.

A client keeps the keys of a file, or that there are none, for as long as it lives. So a client is
another one when the files that hold keys have changed, and one without credentials is not kept.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import datetime
from typing import Any, cast

import boto3
from botocore import UNSIGNED, credentials, exceptions, handlers
from botocore.config import Config
from botocore.session import get_session
from botocore.utils import parse_timestamp

from airflow_cloudfiles.engine.clouds.aws.access import REQUEST_ARGUMENTS, AwsAccess
from airflow_cloudfiles.engine.clouds.aws.errors import asks_metadata_service, readable
from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.storage.access import CONNECTIONS, check_environment, version_of_file
from airflow_cloudfiles.engine.storage.identities import ask

ATTEMPTS = 5
READ_SECONDS = 60
"""How long a silent server is waited for: longer than any long poll of a queue."""

_MOST_CLIENTS = 64
_clients: dict[tuple[str, ...], Any] = {}
_fingerprints: dict[int, tuple[AwsAccess, str]] = {}
"""By identity of an access, which is kept so that no other one gets the same."""
_lock = threading.Lock()
_FILES = {"AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials", "AWS_CONFIG_FILE": "~/.aws/config"}
"""Files of keys and profiles: the variable that names one, and where it is without."""


def aws_client(service: str, access: AwsAccess | None = None) -> Any:
    """Give a client of a service, to be shared by threads; repeated calls give the same one.

    It tries each request up to five times (`AWS_MAX_ATTEMPTS`), with growing pauses, when it is
    throttled, meets a server error or loses the connection, and gives up on a silent server after a
    minute.

    Args:
        service: `s3`, `sqs`, `sns`, `events`, `sts`, …
        access: How AWS is reached; `None` leaves everything to boto3's own chain.

    Raises:
        OptionError: The extra `aws` is not installed, or the access names a profile that does not
            exist.
        ConnectionError: What gives credentials does not answer.
        PermissionError: It refuses.
    """
    key = (service, str(os.getpid()), _fingerprint(access), *_surroundings(access))
    with _lock:
        if key in _clients:
            return _clients[key]
        with readable_errors():
            session = _open_session(access or AwsAccess())
            client = _make_client(session, service, access or AwsAccess())
            if session.get_credentials() is not None:
                _keep(key, client)
        return client


def aws_credentials(access: AwsAccess | None = None) -> Any | None:
    """Give the credentials that clients sign with now, for tools that are not of boto3.

    Those of a role or an instance end within hours: ask again each time they are used.

    Returns:
        `access_key`, `secret_key` and `token`; `None` when the chain finds none.

    Raises:
        OptionError: As `aws_client`.
        ConnectionError: What gives them does not answer.
        PermissionError: What gives them refuses.
    """
    key = ("", str(os.getpid()), _fingerprint(access), *_surroundings(access))
    with readable_errors():
        with _lock:
            found = _clients.get(key)
            if found is None:  # with its session, so that a role is not assumed each time
                found = _open_session(access or AwsAccess()).get_credentials()
                if found is not None:
                    _keep(key, found)
        return found.get_frozen_credentials() if found else None


@contextmanager
def readable_errors() -> Iterator[None]:
    """Explain what botocore raises while credentials are looked for."""
    try:
        yield
    except (exceptions.BotoCoreError, exceptions.ClientError) as failure:
        raise readable(failure, "AWS cannot be reached", "sts:AssumeRole") from failure


def _keep(key: tuple[str, ...], made: Any) -> None:
    """Keep what was made; what was made with credentials that have ended since piles up."""
    if len(_clients) >= _MOST_CLIENTS:
        _clients.clear()
    _clients[key] = made


def _fingerprint(access: AwsAccess | None) -> str:
    """Build what distinguishes an access; it is kept, as each request asks for its client."""
    if access is None:
        return ""
    known = _fingerprints.get(id(access))
    if known is None or known[0] is not access:
        if len(_fingerprints) >= _MOST_CLIENTS:
            _fingerprints.clear()
        known = (access, json.dumps(asdict(access), sort_keys=True))
        _fingerprints[id(access)] = known
    return known[1]


def _surroundings(access: AwsAccess | None) -> list[str]:
    """List what boto3 reads besides an access: when it changes, so does the client."""
    # Looking at the names first is four times faster than going through all values.
    names = [name for name in os.environ if name.startswith("AWS_")]
    found = sorted(f"{name}={os.environ.get(name)}" for name in names)
    if access is None or access.access_key_id is None:
        found += [version_of_file(os.environ.get(name) or file) for name, file in _FILES.items()]
    return found


def _make_client(session: Any, service: str, access: AwsAccess) -> Any:
    client = session.client(service, **_client_arguments(service, access))
    if service == "s3":
        # With `Expect: 100-continue`, botocore waits in a busy loop, for ever, when the connection
        # ends within that first answer (`AWSConnection._consume_headers`). What is written here is
        # small: there is nothing to save by asking first.
        client.meta.events.unregister("before-call.s3", handlers.add_expect_header)
        _add_arguments(client, request_arguments(access))
    return client


def request_arguments(access: AwsAccess | None) -> dict[str, str | bool]:
    """Give what each request to S3 says, in boto3's words: of the access, else the environment."""
    named = {name: os.environ.get(variable) for name, variable in REQUEST_ARGUMENTS.items()}
    found: dict[str, str | bool] = {name: value for name, value in named.items() if value}
    if "BucketKeyEnabled" in found:
        found["BucketKeyEnabled"] = str(found["BucketKeyEnabled"]).lower() == "true"
    if found.get("RequestPayer") in {"true", "True"}:  # as `deltalake` takes it, too
        found["RequestPayer"] = "requester"
    return {**found, **(access.request_arguments if access else {})}


def _add_arguments(client: Any, arguments: Mapping[str, str | bool]) -> None:
    """Have each request say what it has a place for."""

    def add(params: dict[str, Any], model: Any, **_: Any) -> None:
        places = model.input_shape.members if model.input_shape else {}
        for name, value in arguments.items():
            if name in places:
                params.setdefault(name, value)

    if arguments:
        client.meta.events.register("before-parameter-build.s3", add)


def _open_session(access: AwsAccess) -> Any:
    """Session with the identity of the access: its role, if it names one."""
    if access.identity is not None:
        return _session_of_identity(access, access.identity)
    session = _session(access)
    return _session_of_role(session, access) if access.role_arn else session


def _client_arguments(service: str, access: AwsAccess) -> dict[str, Any]:
    return {
        "endpoint_url": access.endpoint_url(service),
        "verify": None if access.verify is True else access.verify,  # None obeys AWS_CA_BUNDLE
        "config": Config(
            retries={
                "mode": "standard",
                "total_max_attempts": int(os.environ.get("AWS_MAX_ATTEMPTS") or ATTEMPTS),
            },
            connect_timeout=10,
            read_timeout=READ_SECONDS,
            max_pool_connections=CONNECTIONS,
            s3={"addressing_style": "path"} if access.path_style else None,
            **access.checksums,
            **_further_config(access),
            user_agent_extra="airflow-provider-cloudfiles",
        ),
    }


def _further_config(access: AwsAccess) -> dict[str, Any]:
    """Give further settings of a client, as botocore names them."""
    found = dict(access.client_config)
    if found.get("signature_version") == "unsigned":
        found["signature_version"] = UNSIGNED
    return found


def _botocore_session() -> Any:
    """Session of botocore that reads the times of a page of a listing in little time.

    Four fifths of what botocore needs for a page are its thousand times, which it reads with a
    parser of any text that may be one.
    """
    made = get_session()
    factory = made.get_component("response_parser_factory")
    factory.set_parser_defaults(timestamp_parser=parse_time)
    return made


def parse_time(value: Any) -> datetime:
    """Read a time as botocore does, by Python's own parser where that takes it."""
    if isinstance(value, str) and value[10:11] == "T" and value.endswith("Z"):
        with suppress(ValueError):
            return datetime.fromisoformat(value)
    return cast("datetime", parse_timestamp(value))


def _session_of_identity(access: AwsAccess, identity: str) -> Any:
    """Session that asks for its credentials: again before each set of them ends."""

    class SoleProvider(credentials.CredentialProvider):  # type: ignore[misc]
        """Alone in the chain of the session: nothing else may answer in its place."""

        METHOD = "cloudfiles-identity"

        def load(self) -> Any:
            found = ask(identity)
            if not found:
                return None
            if found["expiry_time"] is None:
                keys = (found["access_key"], found["secret_key"], found["token"])
                return credentials.Credentials(*keys, method=self.METHOD)
            return credentials.RefreshableCredentials.create_from_metadata(
                found, refresh_using=lambda: ask(identity), method=self.METHOD
            )

    inner = _botocore_session()
    inner.get_component("credential_provider").providers[:] = [SoleProvider()]
    return boto3.session.Session(botocore_session=inner, region_name=access.region)


def _session(access: AwsAccess) -> Any:
    """Session with the credentials that the access holds, or names, or leaves to the chain."""
    if access.access_key_id is None:
        check_environment("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
    try:
        return boto3.session.Session(
            botocore_session=_botocore_session(),
            aws_access_key_id=access.access_key_id,
            aws_secret_access_key=access.secret_access_key,
            aws_session_token=access.session_token,
            profile_name=access.profile,
            region_name=access.region,
        )
    except (exceptions.ProfileNotFound, exceptions.PartialCredentialsError) as failure:
        raise OptionError(
            f"The access to AWS cannot be used: {failure}. Correct the connection, or the AWS "
            f"configuration of this machine."
        ) from failure


def _session_of_role(base: Any, access: AwsAccess) -> Any:
    """Session that is the role: botocore assumes it again before each set of credentials ends."""
    if base.get_credentials() is None and not asks_metadata_service():
        raise OptionError(
            f"There are no credentials to assume {access.role_arn} with. Put a key pair or a "
            f"profile into the connection, or give this machine an identity."
        )

    def create_client(service: str, **with_credentials: Any) -> Any:
        return base.client(service, **_client_arguments(service, access), **with_credentials)

    def fetch() -> Any:
        source = base.get_credentials()
        if source is None:  # not now
            raise exceptions.NoCredentialsError
        fetcher = credentials.AssumeRoleCredentialFetcher(
            create_client,
            source,
            access.role_arn,
            extra_args={
                "RoleSessionName": access.role_session_name or "airflow-provider-cloudfiles",
                **({"ExternalId": access.role_external_id} if access.role_external_id else {}),
            },
        )
        return fetcher.fetch_credentials()

    class Role(credentials.CredentialProvider):  # type: ignore[misc]
        """First in the chain of the session, so that nothing else is asked."""

        METHOD = "cloudfiles-role"

        def load(self) -> Any:
            return credentials.DeferredRefreshableCredentials(
                refresh_using=fetch, method=self.METHOD
            )

    inner = _botocore_session()
    inner.get_component("credential_provider").providers.insert(0, Role())
    return boto3.session.Session(
        botocore_session=inner, region_name=access.region or base.region_name
    )
