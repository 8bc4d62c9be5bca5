"""Read from a connection of type `aws` or `cloudfiles_aws` how AWS is reached.

Where the provider's hook logs in (`access`), what says who asks is left to it.

Fields and precedence are those of Airflow's Amazon provider: "Amazon Web Services Connection" in
its documentation. Host, port and schema, or an extra field `host`, which older ones have for a
MinIO or the like, are the address of all services but STS.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.clouds.aws.access import AwsAccess
from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.hooks.extras import Extras, Source, address_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.providers.common.compat.sdk import Connection

_SERVICES = ("s3", "sqs", "sns", "sts", "events")
_UNSIGNED = "A public bucket is read with any credentials; leave the field out."
_FROM_CHAIN = (
    "Leave the role out of the connection: the environment's own chain assumes a role by web "
    "identity (AWS_ROLE_ARN and AWS_WEB_IDENTITY_TOKEN_FILE, as EKS sets them)."
)
_REFUSED = {
    "assume_role_with_saml": "Use keys, a profile or a role that is assumed with them.",
    "assume_role_with_web_identity_federation": _FROM_CHAIN,
    "assume_role_with_web_identity_federation_audience": _FROM_CHAIN,
    "assume_role_with_web_identity_token_file": _FROM_CHAIN,
    "s3_config_file": "Put the keys in the connection, or name a profile (profile_name).",
    "s3_config_format": "Put the keys in the connection, or name a profile (profile_name).",
}
_LEFT_TO_HOOK = (
    "aws_access_key_id", "aws_secret_access_key", "aws_session_token", "profile_name", "role_arn",
    "assume_role_kwargs", "assume_role_method", *(name for name in _REFUSED if "role" in name),
)  # fmt: skip
_IGNORED_BY_HOOK = "Give it beside session_kwargs: the provider's hook does not look there for it."
_CONFIG_FOR_CLIENTS = (
    "proxies", "proxies_config", "signature_version", "use_dualstack_endpoint", "use_fips_endpoint",
)  # fmt: skip
_REFUSED_CONFIG = {
    "proxies": "Set HTTPS_PROXY and NO_PROXY for the workers.",
    "proxies_config": "Set HTTPS_PROXY and NO_PROXY for the workers.",
    "signature_version": _UNSIGNED,
    "use_dualstack_endpoint": "Give the address as endpoint_url.",
    "use_fips_endpoint": "Give the address as endpoint_url.",
    "client_cert": "Use verify for a certificate authority of your own.",
}
_TUNING = (  # of the provider's clients; ours have their own
    "connect_timeout", "max_pool_connections", "read_timeout", "retries", "tcp_keepalive",
    "user_agent", "user_agent_extra", "disable_request_compression", "parameter_validation",
    "request_min_compression_size_bytes", "user_agent_appid",
)  # fmt: skip
_CHECKSUMS = ("request_checksum_calculation", "response_checksum_validation")
_WHEN = ("when_required", "when_supported")
_ENCRYPTIONS = ("AES256", "aws:kms", "aws:kms:dsse")
_AMAZON = re.compile(r"\.amazonaws\.(com|com\.cn|eu)(:[0-9]+)?(/|$)|\.api\.aws(:[0-9]+)?(/|$)")
_ROLE_ARGUMENTS = dict.fromkeys(
    (
        "Policy",
        "PolicyArns",
        "SerialNumber",
        "SourceIdentity",
        "Tags",
        "TokenCode",
        "TransitiveTagKeys",
    ),
    "The session of a role is made with ExternalId and RoleSessionName only.",
)


def aws_access(connection: Connection, identity: str | None = None) -> AwsAccess:
    """Read a connection of type `aws` or `cloudfiles_aws`.

    Args:
        connection: The connection.
        identity: Who is asked for credentials, if it is not the connection that says them.

    Raises:
        OptionError: It contradicts itself, or says what is not offered.
    """
    extra = Extras.of(connection)
    further = {} if identity is None else _leave_to_hook(connection, extra)
    extra.pass_over("assume_role_method", "assume_role")
    extra.refuse({"assume_role_method": f"Only assume_role is offered. {_FROM_CHAIN}"})
    extra.refuse(_REFUSED)
    key, secret = (None, None) if identity else _keys(connection, extra)
    session = extra.within("session_kwargs")
    role = extra.within("assume_role_kwargs")
    common, is_of_host = _common_address(connection, extra)
    config = _Config.of(extra.within("config_kwargs"))
    endpoint_urls, of_s3 = _endpoints(extra, common)
    styles = [style for style in (of_s3.style, config.style) if style]
    access = AwsAccess(
        access_key_id=key,
        secret_access_key=secret,
        session_token=extra.text("aws_session_token"),
        profile=extra.text("profile_name") or session.text("profile_name"),
        region=extra.text("region_name") or session.text("region_name"),
        role_arn=extra.text("role_arn"),
        role_external_id=role.text("ExternalId"),
        role_session_name=role.text("RoleSessionName"),
        endpoint_urls=endpoint_urls,
        path_style=styles[0] == "path" if styles else is_of_host,
        checksums={**config.checksums, **of_s3.checksums},
        request_arguments=_request_arguments(extra.within("extra_args")),
        verify=_verify(extra),
        identity=identity,
        client_config=further,
    )
    session.end(passed_over=("aws_account_id",))
    role.refuse(_ROLE_ARGUMENTS)
    role.end(passed_over=("DurationSeconds",))  # it is renewed as long as it is used
    extra.end(passed_over=("aws_account_id", "test_endpoint_url"))
    return access


def _leave_to_hook(connection: Connection, extra: Extras) -> dict[str, Any]:
    """Take off what only the hook of the provider reads, and what only its clients obey.

    Returns:
        Settings of the clients.
    """
    _keys(connection, extra)  # one half of a pair, the hook would pass over
    extra.drop(*_LEFT_TO_HOOK)
    session = extra.within("session_kwargs")
    session.refuse({"profile_name": _IGNORED_BY_HOOK, "region_name": _IGNORED_BY_HOOK})
    config = extra.within("config_kwargs")
    found = config.fields()
    further = {name: found.pop(name) for name in _CONFIG_FOR_CLIENTS if name in found}
    if further.get("signature_version") not in {None, "unsigned"}:
        found["signature_version"] = further.pop("signature_version")
    extra.replace("config_kwargs", found)
    return further


def _keys(connection: Connection, extra: Extras) -> tuple[str | None, str | None]:
    """Read the key pair: from login and password, else from the extra fields."""
    named = extra.text("aws_access_key_id"), extra.text("aws_secret_access_key")
    key, secret = (connection.login, connection.password) if connection.login else named
    if bool(key) != bool(secret):
        raise OptionError(
            f"Connection {connection.conn_id!r} ({connection.conn_type}) has one half of a key "
            "pair. Give the access key id as login and the secret access key as password, or "
            "neither."
        )
    return key or None, secret or None


def _common_address(connection: Connection, extra: Extras) -> tuple[str | None, bool]:
    """Find the address of all services but STS, and whether it is a self-hosted server.

    Such a server has the buckets in the path of a request, unless the connection says otherwise:
    few have a name for each bucket.

    Raises:
        OptionError: There are two.
    """
    given = {
        "endpoint_url": extra.text("endpoint_url"),
        "the extra field host": extra.text("host"),
        "host": address_of(connection),
    }
    named = {name: value.strip().rstrip("/") for name, value in given.items() if value}
    if len(set(named.values())) > 1:
        raise OptionError(
            f"Connection {connection.conn_id!r} ({connection.conn_type}) names two addresses, in "
            f"{' and '.join(named)}. Keep the one that is meant."
        )
    address = next(iter(named.values()), None)
    if address is not None and "://" not in address:
        address = f"https://{address}"
    is_own = address is not None and not _AMAZON.search(address)
    return address, is_own and "endpoint_url" not in named


def _endpoints(extra: Extras, common: str | None) -> tuple[dict[str, str], _Config]:
    """Read the addresses by service, and S3's own settings.

    A common address serves every service but STS, as in Airflow: it may be that of S3 in one's
    network, where no role is assumed.
    """
    found = {service: common for service in _SERVICES if common and service != "sts"}
    of_s3 = _Config()
    for service, settings in extra.within("service_config").items():
        if service in _SERVICES:
            if address := settings.text("endpoint_url"):
                found[service] = address.strip()
            read = _Config.of(settings.within("config_kwargs"))
            of_s3 = read if service == "s3" else of_s3
            settings.end(passed_over=("bucket_name",))
    return found, of_s3


@dataclass(frozen=True, slots=True)
class _Config:
    """What botocore's settings say that is obeyed: where the bucket is, and about checksums."""

    style: str | None = None
    checksums: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, config: Extras) -> _Config:
        """Read them, and refuse the others."""
        checksums = {name: value for name in _CHECKSUMS if (value := config.text(name, _WHEN))}
        return cls(_addressing_style(config), checksums)


def _addressing_style(config: Extras) -> str | None:
    """Read where botocore's settings put the bucket in a request."""
    s3 = config.within("s3")
    style = s3.text("addressing_style")
    config.pass_over("signature_version", "s3v4")
    config.refuse(_REFUSED_CONFIG)
    config.end(passed_over=_TUNING)
    s3.end(passed_over=("payload_signing_enabled", "us_east_1_regional_endpoint"))
    return style


def _request_arguments(given: Extras) -> dict[str, str | bool]:
    """Read the arguments of requests, named as `S3Hook(extra_args=…)` and boto3 name them."""
    found: dict[str, str | bool | None] = {
        "RequestPayer": given.text("RequestPayer", ("requester",)),
        "ServerSideEncryption": given.text("ServerSideEncryption", _ENCRYPTIONS),
        "SSEKMSKeyId": given.text("SSEKMSKeyId"),
    }
    if given.peek("BucketKeyEnabled") is not None:
        found["BucketKeyEnabled"] = given.flag("BucketKeyEnabled", default=False)
    given.end()
    return {name: value for name, value in found.items() if value is not None}


def _verify(extra: Extras) -> bool | str:
    """Read whether certificates are checked; a text other than true or false is a bundle's path."""
    given = extra.peek("verify")
    if isinstance(given, str) and given.lower() not in ("true", "false"):
        return str(extra.text("verify"))
    return extra.flag("verify", default=True)


def aws_keys(hook: Any) -> Source:
    """Give the keys of the hook's session; one session as long as its credentials renew."""
    kept: list[Any] = []

    def keys(_: str) -> dict[str, Any]:
        from airflow_cloudfiles.engine.clouds.aws.session import (  # noqa: PLC0415 - of this cloud
            readable_errors,
        )

        with readable_errors():
            found = kept[0] if kept else hook.get_session().get_credentials()
            if found is None:
                return {}
            frozen = found.get_frozen_credentials()
        ends = getattr(found, "_expiry_time", None)
        if ends is not None and not kept:  # others are read again: of a file, they may be new
            kept.append(found)
        return {
            "access_key": frozen.access_key,
            "secret_key": frozen.secret_key,
            "token": frozen.token,
            "expiry_time": None if ends is None else ends.isoformat(),
        }

    return keys
