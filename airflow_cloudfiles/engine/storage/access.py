"""Describe the identity with which a cloud is reached, and its address.

The values of an Airflow connection; nothing here opens anything. Without an access the
clients find credentials in the environment's own chain (instance profile, workload identity,
environment variables, a developer's login), as every other tool of that cloud does.

A Spark driver is another process than the task that starts it. It gets the access in its
environment (`ENVIRONMENT`), never on a command line, in a file or in the state; credentials that
end, it asks the task for (`identities`). Executors of a cluster have an identity of their own.

A secret that was read from a file often ends in a line end. HTTP clients quote what they are given
when it is no header; so an access takes line ends off, and refuses others unseen.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Final

from airflow_cloudfiles.engine.errors import OptionError

ENVIRONMENT = "CLOUDFILES_ACCESS"
"""Environment variable of a child process: the access as JSON. It holds secrets."""

REQUEST_ARGUMENTS = {
    "RequestPayer": "AWS_REQUEST_PAYER",
    "ServerSideEncryption": "AWS_SERVER_SIDE_ENCRYPTION",
    "SSEKMSKeyId": "AWS_SSE_KMS_KEY_ID",
    "BucketKeyEnabled": "AWS_SSE_BUCKET_KEY_ENABLED",
}
"""What requests to S3 may say: who pays, and how is encrypted what is written. With the variables
that say it where no access does, which are also the options of `deltalake`."""

CONNECTIONS = 32
"""Connections to a cloud that one client keeps: no more threads ask one at once."""

MAX_CONNECTIONS = 2
"""Connections to one SFTP server that a process keeps where nothing else is said."""


_LINES: Final = frozenset({"keyfile_json", "private_key"})
"""Secrets that have lines."""
_TYPED: Final = frozenset({"password", "passphrase"})
"""Secrets that a person may have chosen to begin or end with a blank."""


class _Trimmed:
    """Base of the accesses: takes off what a file or a form has put around a value."""

    __slots__ = ()

    def __post_init__(self) -> None:
        for each in fields(self):  # type: ignore[arg-type]  # of a dataclass below
            value = getattr(self, each.name)
            if not isinstance(value, str) or each.name in _LINES:
                continue
            trimmed = value.strip("\r\n") if each.name in _TYPED else value.strip()
            if each.name == "connection_string":  # which is long, and may be written in lines
                trimmed = "".join(line.strip() for line in trimmed.splitlines())
            object.__setattr__(self, each.name, trimmed)
            if not each.repr:
                check_secret(f"The credential {each.name}", trimmed)


def check_secret(what: str, text: str) -> None:
    """Refuse a secret that no client can send, without showing it.

    Args:
        what: What it is, for the message.
        text: The secret.

    Raises:
        OptionError: There is a line end or another control character in it.
    """
    if any(ord(char) < ord(" ") or char == "\x7f" for char in text):
        raise OptionError(
            f"{what} has a line end or another control character in it, which is no part of a "
            f"secret. Correct it where it is kept."
        )


def check_environment(*names: str) -> None:
    """Refuse secrets of the environment that clients would quote in their errors.

    Args:
        names: Of the variables.

    Raises:
        OptionError: One of them begins or ends with a blank or a line end, or has one in it.
    """
    for name in names:
        value = os.environ.get(name, "")
        if value != value.strip():
            raise OptionError(
                f"The environment variable {name} begins or ends with a blank or a line end, which "
                f"is no part of it. Remove it where the variable is set."
            )
        check_secret(f"The environment variable {name}", value)


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsAccess(_Trimmed):
    """How AWS, or a compatible server, is reached.

    Attributes:
        access_key_id: Of a key pair; `None` leaves it to the environment's own chain.
        secret_access_key: Of the key pair.
        session_token: Of temporary credentials.
        profile: Name of a profile in the AWS configuration files.
        region: Such as `eu-central-1`.
        role_arn: A role to assume with the credentials above; renewed as long as it is used.
        role_external_id: Asked for by some trust policies.
        role_session_name: Shows in audit logs.
        endpoint_urls: Addresses by service (`s3`, `sqs`, `sns`, `sts`, `events`); the key `""`
            serves all services without one of their own.
        path_style: Whether the bucket is in the path of a request, as most emulators want it.
        checksums: When S3 is sent and asked for checksums, as botocore's
            `request_checksum_calculation` and `response_checksum_validation` say it.
        request_arguments: What each request to S3 says that has a place for it, in boto3's words
            (`REQUEST_ARGUMENTS`).
        verify: Whether certificates are checked, or the path of a bundle to check them with.
        identity: Who is asked for credentials (`identities`), in place of all of the above ones.
        client_config: Further settings of botocore's clients: proxies, `signature_version`, ….
    """

    access_key_id: str | None = None
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    profile: str | None = None
    region: str | None = None
    role_arn: str | None = None
    role_external_id: str | None = field(default=None, repr=False)
    role_session_name: str | None = None
    endpoint_urls: Mapping[str, str] = field(default_factory=dict)
    path_style: bool = False
    checksums: Mapping[str, str] = field(default_factory=dict)
    request_arguments: Mapping[str, str | bool] = field(default_factory=dict)
    verify: bool | str = True
    identity: str | None = None
    client_config: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def endpoint_url(self, service: str) -> str | None:
        """Address of a service; `None` for AWS's own."""
        return self.endpoint_urls.get(service) or self.endpoint_urls.get("") or None


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureAccess(_Trimmed):
    """How Azure Storage is reached: one of the ways, else the environment's own chain.

    Attributes:
        connection_string: Everything at once, as the portal shows it.
        account_key: Shared key of the account.
        sas_token: Shared access signature.
        tenant_id: Of a service principal, with `client_id` and `client_secret`.
        client_id: Of a service principal, or of a user-assigned managed identity.
        client_secret: Of a service principal.
        blob_endpoint: Address of the Blob service (`https://account.blob.core.windows.net`).
        queue_endpoint: Address of the Queue service.
        subscription_id: The Azure subscription of the account, for links to the portal only.
        resource_group: Its resource group, likewise.
        identity: Who is asked for tokens (`identities`), in place of all of the above credentials.
        proxies: Addresses of proxies, by scheme.
    """

    connection_string: str | None = field(default=None, repr=False)
    account_key: str | None = field(default=None, repr=False)
    sas_token: str | None = field(default=None, repr=False)
    tenant_id: str | None = None
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    blob_endpoint: str | None = None
    queue_endpoint: str | None = None
    subscription_id: str | None = None
    resource_group: str | None = None
    identity: str | None = None
    proxies: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class GcpAccess(_Trimmed):
    """How Google Cloud is reached: one of the ways, else application default credentials.

    Attributes:
        project: Id of the project that requests are made for.
        keyfile_json: A service account's key, as JSON text.
        keyfile_path: A file that holds one.
        anonymous: No credentials at all: public buckets and emulators.
        storage_endpoint: Address of Cloud Storage; `STORAGE_EMULATOR_HOST` is obeyed besides.
        pubsub_endpoint: `host:port` of a Pub/Sub emulator; `PUBSUB_EMULATOR_HOST` besides.
        identity: Who is asked for tokens (`identities`), in place of all of the above credentials.
        quota_project: Id of the project whose quota requests count against.
    """

    project: str | None = None
    keyfile_json: str | None = field(default=None, repr=False)
    keyfile_path: str | None = None
    anonymous: bool = False
    storage_endpoint: str | None = None
    pubsub_endpoint: str | None = None
    identity: str | None = None
    quota_project: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SftpAccess(_Trimmed):
    """How an SFTP server is reached.

    Without password and key, the agent and the keys in `~/.ssh` are tried.

    Attributes:
        host: The server that these credentials are for; a location on another one is refused.
        port: Of the server; `None` for the one of the location, else 22.
        user: `None` for the one of the location, else the name of this process's user.
        password: Of the user.
        key_file: Path of a private key.
        private_key: The text of a private key.
        passphrase: Of the private key.
        uses_own_keys: Whether the agent and the keys in `~/.ssh` are tried where neither password
            nor key is given.
        host_key: The server's public key, as `ssh-ed25519 AAAA…`; no file is looked at then.
        known_hosts: Path of a file of known hosts; `None` for those of OpenSSH.
        checks_host_key: Whether the server must be known. Without, anybody can pose as the server.
        max_connections: Connections that one process keeps to the server, at most.
    """

    host: str | None = None
    port: int | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    key_file: str | None = None
    private_key: str | None = field(default=None, repr=False)
    passphrase: str | None = field(default=None, repr=False)
    uses_own_keys: bool = True
    host_key: str | None = None
    known_hosts: str | None = None
    checks_host_key: bool = True
    max_connections: int = MAX_CONNECTIONS


def version_of_file(path: str | None) -> str:
    """Tell a file from the one that was there before; something may renew the keys in it.

    Args:
        path: Of the file; may begin with `~`.

    Returns:
        An empty text where there is none.
    """
    try:
        found = os.stat(os.path.expanduser(path or ""))  # noqa: PTH111, PTH116 - as clients do
    except OSError:
        return ""
    return f"{found.st_mtime_ns}:{found.st_size}:{found.st_ino}"


Access = AwsAccess | AzureAccess | GcpAccess | SftpAccess
_KINDS: dict[str, type[Access]] = {
    "aws": AwsAccess,
    "azure": AzureAccess,
    "gcp": GcpAccess,
    "sftp": SftpAccess,
}


def identity_in(access: Access) -> str | None:
    """Give whom an access asks for credentials, if it does."""
    return None if isinstance(access, SftpAccess) else access.identity


def with_identity(access: Access, identity: str) -> Access:
    """Give the same access, which asks somebody else."""
    return access if isinstance(access, SftpAccess) else replace(access, identity=identity)


def to_environment(access: Access) -> dict[str, str]:
    """Give the environment variable that hands an access to a child process."""
    kind = next(name for name, cls in _KINDS.items() if isinstance(access, cls))
    return {ENVIRONMENT: json.dumps({"kind": kind, **asdict(access)})}


def from_environment(environment: Mapping[str, str] | None = None) -> Access | None:
    """Read what `to_environment` gave; `None` when there is nothing.

    Raises:
        OptionError: The variable holds something else.
    """
    text = (os.environ if environment is None else environment).get(ENVIRONMENT)
    if not text:
        return None
    try:
        fields: dict[str, Any] = json.loads(text)
        return _KINDS[fields.pop("kind")](**fields)
    except (ValueError, TypeError, KeyError, AttributeError):
        raise OptionError(  # without the cause, whose text could hold a secret
            f"{ENVIRONMENT} is not an access as this version writes it. It is set by the operators "
            "for the Spark they start; unset it to use the environment's own credential chain."
        ) from None


def of_kind(kind: type[Any], access: Access | None) -> Any:
    """Choose the access for one cloud: the given one, else the environment's, else none.

    An access of another cloud is none for this one: a stream may have its source in one cloud and
    its state in another.
    """
    for candidate in (access, from_environment()):
        if isinstance(candidate, kind):
            return candidate
    return None
