"""An HTTP server of a test, in a thread, for the length of a `with` block."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from tests.support.waiting import ended

if TYPE_CHECKING:
    from collections.abc import Iterator
    from http.server import ThreadingHTTPServer

CONNECTIONS = 128
"""How many connections may wait to be accepted, as clients that ask side by side open them."""
_Server = TypeVar("_Server", bound="ThreadingHTTPServer")


@contextmanager
def serving(server: _Server) -> Iterator[_Server]:
    """Let a server answer until the block ends, and end it then."""
    # It lets five wait to be accepted; the system makes others try again after a second.
    server.socket.listen(CONNECTIONS)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        ending = threading.Thread(target=server.shutdown, daemon=True)  # which waits without limit
        ending.start()
        ended(ending, "an HTTP server")
        ended(thread, "an HTTP server")
        server.server_close()
