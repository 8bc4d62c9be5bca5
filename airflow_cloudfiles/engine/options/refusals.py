"""Which documented options does this version refuse, and why?

Each is declared once: its name, the reason with what to do instead, and the values that change
nothing and are accepted. What only one format refuses is with the options of that format.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from airflow_cloudfiles.engine.errors import UnsupportedOptionError
from airflow_cloudfiles.engine.messages import cut


@dataclass(frozen=True, slots=True)
class Refused:
    """A documented option that is refused."""

    name: str
    """As users write it."""
    reason: str
    """Why, and what to do instead."""
    accepts: tuple[str, ...] = ()
    """Values, in lower case, that change nothing: these are accepted."""

    def refuse(self, value: str, format_name: str = "") -> None:
        """Raise, unless the value changes nothing.

        Args:
            value: What was given. It is in the error only where some values are accepted: it may
                be a secret.
            format_name: The format that refuses the option, if others have it.

        Raises:
            UnsupportedOptionError: It is refused.
        """
        if value.lower() in self.accepts:
            return
        given = f"{self.name}={cut(value)}" if self.accepts else self.name
        where = f" for format {format_name}" if format_name else ""
        raise UnsupportedOptionError(f"{given} is refused{where}: {self.reason}")


def _all(reason: str, *names: str) -> tuple[Refused, ...]:
    return tuple(Refused(name, reason) for name in names)


CREDENTIALS: Final = _all(
    "credentials never travel as options, which are rendered, logged and stored. Use an Airflow "
    "connection (conn_id), or the environment's own credential chain.",
    "cloudFiles.awsAccessKey",
    "cloudFiles.awsSecretKey",
    "cloudFiles.tenantId",
    "cloudFiles.clientId",
    "cloudFiles.clientSecret",
    "cloudFiles.connectionString",
    "cloudFiles.client",
    "cloudFiles.clientEmail",
    "cloudFiles.privateKey",
    "cloudFiles.privateKeyId",
)
"""Credentials: refused for good."""

IN_CONNECTION: Final = _all(
    "it belongs to the identity that is used. Give it in the extra field of the Airflow "
    "connection (conn_id), or in the environment's own credential chain.",
    "cloudFiles.roleArn",
    "cloudFiles.roleExternalId",
    "cloudFiles.roleSessionName",
    "cloudFiles.stsEndpoint",
)
"""Parts of an identity: they are in the connection."""

IN_SET_UP: Final = _all(
    "it is given once, when the queue is set up (`cloudfiles docs set-up-notifications`), not to "
    "the stream. Remove it.",
    "cloudFiles.resourceTag",
    "cloudFiles.resourceGroup",
    "cloudFiles.subscriptionId",
    "cloudFiles.restrictNotificationSetupToSameAWSAccountId",
)
"""Of the notification resources: they are given when these are set up."""

PLATFORM: Final = _all(
    "it belongs to Databricks' platform. Use an Airflow connection (conn_id), or the environment's "
    "own credential chain.",
    "databricks.serviceCredential",
    "cloudFiles.databricks.serviceCredential",
    "databricks.connection",
    "cloudFiles.databricks.connection",
)
"""Options of Databricks' own platform."""

NOT_READ: Final = (
    Refused(
        "cloudFiles.readChangeFeed",
        "files have no change feed, and that of a Delta table is not read. Remove it; what is "
        "appended to a Delta table is read with format delta.",
        ("false",),
    ),
    Refused(
        "archivePathFilter",
        "archives are not read, so there is nothing in them to choose from. Unpack them before "
        "they land, and choose by pathGlobFilter.",
    ),
    Refused(
        "ignoredPathSegmentRegex",
        "which names are ignored is fixed, as in Spark: those that begin with a dot or an "
        "underscore. Choose files by pathGlobFilter and by a pattern in the path.",
    ),
    Refused(
        "timeFormat",
        "there is no type TIME here, so no value is read by it. Remove it: a time of day is read "
        "as a STRING.",
    ),
)
"""Options of what is not read."""

REFUSED: Final = (*CREDENTIALS, *IN_CONNECTION, *IN_SET_UP, *PLATFORM, *NOT_READ)
"""All that are refused for every format."""

_BY_KEY: Final = {each.name.lower(): each for each in REFUSED}
_RESOURCE_TAG: Final = "cloudfiles.resourcetag"


def refused(key: str) -> Refused | None:
    """What is refused under a name, in lower case; `cloudFiles.resourceTag` has any ending."""
    return _BY_KEY.get(_RESOURCE_TAG if key.startswith(_RESOURCE_TAG) else key)
