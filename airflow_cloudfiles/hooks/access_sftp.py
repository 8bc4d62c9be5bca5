"""Read from a connection of type `sftp`, `ssh` or `cloudfiles_sftp` how a server is reached.

Fields are those of Airflow's SFTP and SSH providers, under their names, and two of ours:
`max_connections`, and `known_hosts`, which the provider has for its asynchronous hook. In one thing
this package is stricter: the key of the server is checked, unless `no_host_key_check` is true.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.clouds.sftp.access import MAX_CONNECTIONS, SftpAccess
from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.hooks.extras import Extras, refuse_fields

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Connection

_ALGORITHMS = "The algorithms are those of the client; a server that has none of them is too old."
_REFUSED = {
    "allow_host_key_change": "A server with another key is not trusted: give its new host_key.",
    "ciphers": _ALGORITHMS,
    "disabled_algorithms": _ALGORITHMS,
    "host_proxy_cmd": "No command is run to reach a server. Give a host that can be reached.",
}
_TUNING = (  # of the provider's clients; ours has its own
    "auth_timeout", "banner_timeout", "cmd_timeout", "compress", "conn_timeout",
    "keepalive_interval", "timeout",
)  # fmt: skip
_log = logging.getLogger(__name__)


def sftp_access(connection: Connection) -> SftpAccess:
    """Read a connection of type `sftp`, `ssh` or `cloudfiles_sftp`.

    Raises:
        OptionError: It contradicts itself, or says what is not offered.
    """
    extra = Extras.of(connection)
    extra.refuse(_REFUSED)
    refuse_fields(connection, {"schema": "Which folder is read, a location says. Remove it."})
    where = f"Connection {connection.conn_id!r} ({connection.conn_type})"
    if not connection.host:
        raise OptionError(f"{where} has no host. Its credentials are sent to that server only.")
    private_key = extra.text("private_key")
    max_connections = extra.whole("max_connections", default=MAX_CONNECTIONS)
    if max_connections < 1:
        raise OptionError(f"{where}: max_connections must be 1 at least. Correct it there.")
    access = SftpAccess(
        host=connection.host,
        port=connection.port,
        user=connection.login or None,
        password=connection.password or None,
        key_file=extra.text("key_file"),
        private_key=private_key and private_key.replace("\\n", "\n"),  # as forms write line ends
        passphrase=extra.text("private_key_passphrase") or extra.text("passphrase"),
        uses_own_keys=extra.flag("look_for_keys", default=True),
        host_key=extra.text("host_key"),
        known_hosts=extra.text("known_hosts"),
        checks_host_key=not extra.flag("no_host_key_check", default=False),
        max_connections=max_connections,
    )
    extra.end(passed_over=_TUNING)
    if access.key_file and access.private_key:
        raise OptionError(f"{where} has a key_file and a private_key. Keep the one that is meant.")
    if not access.checks_host_key:
        if access.host_key or access.known_hosts:
            raise OptionError(
                f"{where} says which key the server has, and no_host_key_check not to look at it. "
                "Keep one of them."
            )
        _log.warning(
            "%s: no_host_key_check is true, so any server can pose as %s and be given the password",
            where,
            connection.host,
        )
    return access
