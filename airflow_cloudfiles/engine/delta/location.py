"""Say where a Delta table is, and how `deltalake` gets there.

A folder of this machine, or a place in a cloud. There the data files go through the `ObjectStore`
of the cloud and the log through `deltalake`, which has clients of its own: both are given the same
identity. The options of `deltalake` hold secrets, so it is made when it is needed and kept nowhere.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from deltalake.exceptions import (
    CommitFailedError,
    DeltaError,
    SchemaMismatchError,
    TableNotFoundError,
)

from airflow_cloudfiles.engine.errors import (
    SinkError,
    TargetAccessError,
    TargetUnreachableError,
    UnsupportedOptionError,
    is_panic,
)
from airflow_cloudfiles.engine.storage import ObjectStore, normalize_uri, open_store
from airflow_cloudfiles.engine.storage.access import (
    REQUEST_ARGUMENTS,
    AwsAccess,
    AzureAccess,
    GcpAccess,
    of_kind,
)
from airflow_cloudfiles.engine.storage.base import key_bytes
from airflow_cloudfiles.engine.storage.outage import is_passing, is_transient
from airflow_cloudfiles.engine.storage.uri import bucket_and_path, local_path, refuse_source_only

_ESCAPE = re.compile("%[0-9A-Fa-f]{2}")
_CATALOG = re.compile(r"(?i)(uc|unity|glue|hive|hms|unitycatalog)://")
_TABLE_NAME = re.compile(r"[A-Za-z_]\w*\.[A-Za-z_]\w*\.[A-Za-z_]\w*")
"""`catalog.schema.table`; a folder of that name in the working directory is a path."""
_CUT = re.compile(r"[#?\x00-\x1f\x7f]")
_COLORS = re.compile("\x1b\\[[0-9;]*m")
_STACK = re.compile(r"\n\s+0: .*", re.DOTALL)
"""What the library appends to an error of its own for its authors."""
_MOST_TEXT = 600
_REFUSAL = re.compile(
    r"status code (?!408|409|416|429)4\d\d|lacked (the necessary privileges|valid authentication)"
    r"|os error (1|13|20|21|30)\b"  # not permitted, denied, not a directory, is one, read-only
)
"""What `deltalake` says when the place refused: it raises one class for everything."""
_NOT_BEGUN = re.compile(r"Unable to open file .+#\d+")
"""It could not even open the file that it gives the name of the next version."""
_OUTAGE = re.compile(
    # 416: it asked for the rest of an answer that was cut off at its very end.
    r"status code (408|409|416|429|5\d\d)|HTTP status (server error|client error \((408|409|429) )"
    r"|(?i:error sending request|error decoding response|connection (reset|closed|refused|abort)"
    r"|timed out|timeout|incomplete message|broken pipe|too many open files)"
    r"|LogSegment end version \d+ not the same"  # an entry that one look did not show
)
"""What it says when the place did not answer; its own tries have failed by then."""
_OS_ERROR = re.compile(r"os error (\d+)\b")
_NO_KEY = {"disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}
_STORAGE_SCOPE = "https://storage.azure.com/.default"
_SECRETS = (
    "_secret_access_key", "_session_token", "_account_key", "_sas_token", "_storage_token",
    "proxy_url",
)  # fmt: skip
"""How the names of options end whose values are secrets; a key of Google's is never in a text."""


@dataclass(frozen=True, slots=True)
class DeltaLocation:
    """Where a table is.

    Attributes:
        target: As it was given, for messages.
        uri: In its canonical form.
    """

    target: str
    uri: str

    @classmethod
    def of(cls, target: str) -> DeltaLocation:
        """Read a target.

        Raises:
            UnsupportedOptionError: A location that tables cannot be in.
            SinkError: Its name cannot be used.
        """
        location = cls.to_read(target)
        if location.uri.startswith("memory:"):
            raise UnsupportedOptionError(
                f"The target {target} cannot be written: a table must be on a local disk, S3, "
                "Azure Storage or Cloud Storage."
            )
        _check_name(location)
        return location

    @classmethod
    def to_read(cls, target: str) -> DeltaLocation:
        """Read a target that only this package's own reader opens: any name will do.

        Raises:
            UnsupportedOptionError: A location that this version cannot reach, or a table's name in
                a catalog.
        """
        _refuse_catalog(target)
        return cls(target, normalize_uri(target))

    @property
    def folder(self) -> str | None:
        """The folder on this machine, as Python names it; `None` for a place in a cloud.

        Names are UTF-8 on the disk, and for `deltalake`; Python's are in the locale's encoding.
        """
        if not self.uri.startswith("file:"):
            return None
        return os.fsdecode(key_bytes(local_path(self.uri)))

    @property
    def table_uri(self) -> str:
        """What `deltalake` calls the place."""
        return self.uri if self.folder is None else local_path(self.uri)

    def store(self) -> ObjectStore:
        """Open the store of the table's files."""
        refuse_source_only(self.uri)
        return open_store(self.uri)

    def storage_options(self) -> dict[str, str]:
        """Build the options that `deltalake` needs; they hold secrets, some of which expire soon.

        Raises:
            OptionError: The access is not for this place, or cannot be used.
            TargetUnreachableError: What gives credentials does not answer.
            TargetAccessError: It gives none.
        """
        if self.folder is not None:
            return {}
        bucket, _ = bucket_and_path(self.uri)
        make = {"s3": _of_aws, "abfss": _of_azure, "gs": _of_gcp}
        try:
            return make[self.uri.partition(":")[0]](bucket)
        except OSError as error:
            lasts = not is_transient(error)
            raise self._failed("cannot be reached", str(error), lasts=lasts) from error

    @contextlib.contextmanager
    def translate_errors(self, what: str) -> Iterator[None]:
        """Put what `deltalake` raises into a sentence.

        What callers decide by passes: a commit that others won, a table that is not there.

        Args:
            what: What was being done: `cannot be opened`.

        Raises:
            TargetUnreachableError: The place does not answer, or fails for the moment.
            TargetAccessError: The place refused us.
            SinkError: The table did not do what it was asked.
        """
        try:
            yield
        except (CommitFailedError, TableNotFoundError, SchemaMismatchError):
            raise
        except (DeltaError, OSError) as error:
            text = _without_secrets(str(error), self.storage_options())
            if isinstance(error, OSError) or _REFUSAL.search(text) or _is_outage(text):
                raise self._failed(what, text, lasts=self._lasts(what, text)) from None
            raise SinkError(f"The Delta table {self.target} {what}: {text}") from None
        except BaseException as error:
            if not is_panic(error):
                raise
            text = _without_secrets(str(error), self.storage_options())
            raise self._failed(what, f"deltalake has panicked ({text}).", lasts=False) from None

    @contextlib.contextmanager
    def translate_store_errors(self, what: str) -> Iterator[None]:
        """Put what a store or the local disk raises into a sentence.

        Raises:
            TargetUnreachableError: The place does not answer, or fails for the moment.
            TargetAccessError: The place refused us.
        """
        try:
            yield
        except OSError as error:
            # On a disk, what has no number comes from a library that does not tell it.
            is_untold = self.folder is not None and error.errno is None
            lasts = not (is_untold or is_transient(error))
            raise self._failed(what, f"{error}.", lasts=lasts) from error

    def _lasts(self, what: str, reason: str) -> bool:
        """Tell whether another try would meet the same refusal.

        On a disk, only the next try can tell whether a commit was taken that the disk then failed.
        """
        if _REFUSAL.search(reason) is None:
            return False
        is_commit = self.folder is not None and what.startswith("may not have taken")
        return not is_commit or _NOT_BEGUN.search(reason) is not None

    def _failed(self, what: str, reason: str, *, lasts: bool) -> SinkError:
        failure = f"The Delta table {self.target} {what}: {reason}"
        if lasts:
            return TargetAccessError(
                f"{failure} Correct the location, and grant the identity in use permission to "
                "list, read, write and delete there."
            )
        return TargetUnreachableError(f"{failure} Run again when the location can be reached.")


def _is_outage(text: str) -> bool:
    """Tell whether the failure that `deltalake` reports may have passed by the next try."""
    numbers = map(int, _OS_ERROR.findall(text))
    return _OUTAGE.search(text) is not None or any(is_passing(number) for number in numbers)


def _refuse_catalog(target: str) -> None:
    """Refuse the name of a table in a catalog: a table is where its path says."""
    catalog = _CATALOG.match(target)
    if catalog is None and (_TABLE_NAME.fullmatch(target) is None or os.path.exists(target)):  # noqa: PTH110 - any text
        return
    what = f"in a catalog ({catalog[1].lower()})" if catalog else "in a catalog"
    raise UnsupportedOptionError(
        f"{target} is the name of a table {what}, and catalogs are not asked. Give the path of the "
        "table, such as s3://bucket/tables/name: for Unity Catalog and Glue that is the location "
        "which DESCRIBE DETAIL shows."
    )


def _check_name(location: DeltaLocation) -> None:
    """Refuse names that `deltalake`, which takes them for parts of a URL, would change."""
    found = None
    if _ESCAPE.search(location.uri):
        found = "a % followed by two hexadecimal digits"
    elif location.folder is None:
        path = bucket_and_path(location.uri)[1]
        if _CUT.search(path):
            found = "a #, a ? or a control character"
        elif path and any(part in {"", ".", ".."} for part in path.split("/")):
            found = "a doubled slash, a . or a .."
    if found:
        raise SinkError(
            f"The target {location.target!r} has {found} in its path, which the deltalake library "
            "does not take literally. Choose another path."
        )


def _of_aws(bucket: str) -> dict[str, str]:
    """Find identity and address for S3, as boto3 does."""
    from airflow_cloudfiles.engine.storage.aws.session import (  # noqa: PLC0415 - of this cloud only
        aws_client,
        aws_credentials,
        request_arguments,
    )

    access: AwsAccess | None = of_kind(AwsAccess, None)
    client = aws_client("s3", access)
    options = {
        "aws_region": _region(client, bucket),
        # Whole versions of the log or none, and each once: S3's own condition, no lock beside it.
        "aws_conditional_put": "etag",
    }
    found = aws_credentials(access)
    if found is not None:
        options["aws_access_key_id"] = found.access_key
        options["aws_secret_access_key"] = found.secret_key
        if found.token:
            options["aws_session_token"] = found.token
    endpoint = str(client.meta.endpoint_url)
    # What `deltalake` finds by itself; the addresses of other partitions, too, are named to it.
    of_amazon = (urlsplit(endpoint).hostname or "").endswith(".amazonaws.com")
    if not of_amazon:
        options |= _address("aws_endpoint_url", "aws_allow_http", endpoint)
    path_style = not of_amazon or "." in bucket or (access is not None and access.path_style)
    options["aws_virtual_hosted_style_request"] = str(not path_style).lower()
    options |= _of_client_config(access.client_config if access else {})
    for name, value in request_arguments(access).items():
        is_yes = value is True or name == "RequestPayer"
        options[REQUEST_ARGUMENTS[name].lower()] = "true" if is_yes else str(value)
    if access is not None and access.verify is False:
        options["allow_invalid_certificates"] = "true"
    return options


def _of_client_config(config: Mapping[str, Any]) -> dict[str, str]:
    """Find what clients of S3 obey besides, in the words of `deltalake`.

    Raises:
        UnsupportedOptionError: It has no word for it.
    """
    for name in ("use_dualstack_endpoint", "use_fips_endpoint", "proxies_config"):
        if config.get(name):
            raise UnsupportedOptionError(
                f"The connection says {name} in config_kwargs, which deltalake does not know. Give "
                "the address as endpoint_url, or a proxy that needs no settings, for tables."
            )
    options = _proxied(config.get("proxies") or {})
    if config.get("signature_version") == "unsigned":
        options["aws_skip_signature"] = "true"
    return options


def _proxied(proxies: Mapping[str, str]) -> dict[str, str]:
    """Find the option for a proxy."""
    address = proxies.get("https") or proxies.get("http")
    return {"proxy_url": address} if address else {}


def _region(client: Any, bucket: str) -> str:
    """Return the region of a client; ask the bucket when the client has none."""
    named = str(client.meta.region_name or "")
    if named not in {"", "aws-global"}:
        return named
    return str(client.head_bucket(Bucket=bucket).get("BucketRegion") or "us-east-1")


def _of_azure(bucket: str) -> dict[str, str]:
    """Find identity and address for a container, as the Azure store does."""
    from airflow_cloudfiles.engine.storage.azure.client import (  # noqa: PLC0415 - of this cloud only
        open_account,
    )
    from airflow_cloudfiles.engine.storage.azure.errors import (  # noqa: PLC0415 - as above
        token_of,
    )

    name, _, domain = bucket.rpartition("@")[2].partition(".dfs.")
    access: AzureAccess | None = of_kind(AzureAccess, None)
    account = open_account(name, access, "blob", domain=domain)
    options = {
        **_proxied(access.proxies if access else {}),
        "azure_storage_account_name": name,
        **_address("azure_storage_endpoint", "azure_allow_http", account.endpoint),
    }
    credential = account.credential
    if isinstance(credential, dict):
        options["azure_storage_account_key"] = credential["account_key"]
    elif hasattr(credential, "signature"):
        options["azure_storage_sas_token"] = credential.signature
    else:
        options["azure_storage_token"] = token_of(credential, _STORAGE_SCOPE)
    return options


def _of_gcp(_bucket: str) -> dict[str, str]:
    """Find identity and address for Cloud Storage; without a key, `deltalake` looks for its own."""
    access: GcpAccess = of_kind(GcpAccess, None) or GcpAccess()
    options: dict[str, str] = {}
    if access.identity is not None:
        raise UnsupportedOptionError(
            "A Delta table on Cloud Storage is written through deltalake, which takes no token: "
            "an identity that Airflow's Google provider logs in with can't reach it. Use the key "
            "of a service account, or application default credentials, for the target."
        )
    if access.keyfile_json:
        options["google_service_account_key"] = access.keyfile_json
    elif access.keyfile_path:
        options["google_service_account"] = access.keyfile_path
    elif access.anonymous:
        options["google_skip_signature"] = "true"
        # Without this option, too, it asks for a token when it writes (object_store 0.13).
        options["google_service_account_key"] = json.dumps(_NO_KEY)
    endpoint = access.storage_endpoint or os.environ.get("STORAGE_EMULATOR_HOST")
    if endpoint:
        endpoint = endpoint if "://" in endpoint else f"http://{endpoint}"
        options |= _address("google_base_url", "google_allow_http", endpoint)
    return options


def _address(key: str, allow_key: str, endpoint: str) -> dict[str, str]:
    allowed = {allow_key: "true"} if endpoint.startswith("http:") else {}
    return {key: endpoint.rstrip("/"), **allowed}


def _without_secrets(text: str, options: dict[str, str]) -> str:
    """Return an error's text as one line, without the secrets it was given."""
    line = " ".join(_STACK.sub("", _COLORS.sub("", text)).replace("↳", "").split())
    for key, value in options.items():
        if key.endswith(_SECRETS):
            line = line.replace(value, "…")
    return line if len(line) <= _MOST_TEXT else line[:_MOST_TEXT] + "…"
