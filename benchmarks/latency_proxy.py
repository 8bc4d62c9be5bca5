"""A store far away: `python -m benchmarks.latency_proxy UPSTREAM_PORT PORT MILLISECONDS`.

Passes HTTP/1.1 requests on to a server of this machine, and each answer back no sooner than so many
milliseconds after its request. It counts requests, and how many GETs of objects were under way at a
time; `GET /_figures` gives the counts and starts them anew. It looks at nothing but heads, so that
it costs little of the cores that are measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from dataclasses import dataclass

_FIGURES = b"GET /_figures "
_MOST_BYTES = 1 << 24


@dataclass(slots=True)
class Counts:
    """What has passed since it was last asked for."""

    requests: int = 0
    gets: int = 0
    gets_in_flight: int = 0
    most_gets_in_flight: int = 0

    def taken(self) -> bytes:
        """Give the counts as JSON, and start anew."""
        found = {
            "requests": self.requests,
            "gets": self.gets,
            "most_gets_in_flight": self.most_gets_in_flight,
        }
        self.requests = self.gets = 0
        self.most_gets_in_flight = self.gets_in_flight
        return json.dumps(found).encode()


class Proxy:
    """The proxy.

    Args:
        upstream: Port of the server behind it.
        seconds: How long an answer takes at least.
    """

    def __init__(self, upstream: int, seconds: float) -> None:
        self._upstream = upstream
        self._seconds = seconds
        self._counts = Counts()

    async def serve(self, port: int) -> None:
        """Serve until this process ends."""
        server = await asyncio.start_server(self._client, "127.0.0.1", port, limit=_MOST_BYTES)
        await server.serve_forever()

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection of a client, with one of its own to the server."""
        server = None
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if head.startswith(_FIGURES):
                    body = self._counts.taken()
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body))
                    writer.write(body)
                    continue
                if server is None:
                    server = await asyncio.open_connection(
                        "127.0.0.1", self._upstream, limit=_MOST_BYTES
                    )
                await self._exchange(head, (reader, writer), server)
        except (asyncio.IncompleteReadError, OSError):
            pass  # either side has closed the connection
        finally:
            for each in (writer, *(server[1:] if server else ())):
                with contextlib.suppress(OSError):
                    each.close()

    async def _exchange(
        self,
        head: bytes,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        server: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        """Pass on one request and, late enough, its answer."""
        arrived = time.monotonic()
        self._counts.requests += 1
        is_get = head.startswith(b"GET ") and b"list-type=" not in head.partition(b"\r\n")[0]
        self._counts.gets += is_get
        self._counts.gets_in_flight += is_get
        self._counts.most_gets_in_flight = max(
            self._counts.most_gets_in_flight, self._counts.gets_in_flight
        )
        try:
            server[1].write(head + await _body(head, client[0]))
            answer = await server[0].readuntil(b"\r\n\r\n")
            if not head.startswith(b"HEAD "):
                answer += await _body(answer, server[0])
            await asyncio.sleep(arrived + self._seconds - time.monotonic())
            client[1].write(answer)
            await client[1].drain()
        finally:
            self._counts.gets_in_flight -= is_get


async def _body(head: bytes, reader: asyncio.StreamReader) -> bytes:
    """What follows a head: as many bytes as it says, or chunks."""
    fields = {
        name.strip().lower(): value.strip().lower()
        for name, _, value in (line.partition(b":") for line in head.split(b"\r\n")[1:])
    }
    if fields.get(b"transfer-encoding") != b"chunked":
        return await reader.readexactly(int(fields.get(b"content-length", b"0")))
    chunks = b""
    while True:
        line = await reader.readuntil(b"\r\n")
        size = int(line.partition(b";")[0], 16)
        chunks += line + await reader.readexactly(size + 2)
        if size == 0:
            return chunks


if __name__ == "__main__":
    upstream_port, own_port, milliseconds = map(int, sys.argv[1:])
    asyncio.run(Proxy(upstream_port, milliseconds / 1000).serve(own_port))
