"""Connections to a store, without the client library: none follows a redirection by itself."""

from __future__ import annotations

from typing import Any, Final

from urllib3 import PoolManager, ProxyManager, Timeout

from tdcs.engine.tls_failures import pinned, trusting

_CONNECTIONS: Final = 32


def store_pool(ca_bundle: str, *, proxy: str = "", only: bool = False) -> PoolManager:
    """Connections to a store, or to what stands before it.

    Args:
        ca_bundle: authorities in PEM that are trusted in addition to the public ones.
        proxy: of HTTP, which is asked for everything; empty: none.
        only: whether `ca_bundle` is the one certificate that is taken, whatever the host is called.
    """
    settings: dict[str, Any] = {
        "timeout": Timeout(connect=10, read=30),
        "maxsize": _CONNECTIONS,
        "retries": False,
        "ssl_context": pinned(ca_bundle) if only else trusting(ca_bundle) if ca_bundle else None,
        "assert_hostname": False if only else None,
    }
    return ProxyManager(proxy, **settings) if proxy else PoolManager(**settings)
