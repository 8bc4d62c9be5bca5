"""Write addresses in the options of `deltalake`, which all clouds share."""

from __future__ import annotations

from collections.abc import Mapping


def proxy_options(proxies: Mapping[str, str]) -> dict[str, str]:
    """Find the option for a proxy."""
    address = proxies.get("https") or proxies.get("http")
    return {"proxy_url": address} if address else {}


def address_options(key: str, allow_key: str, endpoint: str) -> dict[str, str]:
    """Give the options for an address, and that it may be without encryption."""
    allowed = {allow_key: "true"} if endpoint.startswith("http:") else {}
    return {key: endpoint.rstrip("/"), **allowed}
