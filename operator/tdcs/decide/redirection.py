"""Where the readers of a web source may be sent by its server.

The server's own address is what rules were asked about. A repository, or a mirror of one, keeps its large files at
other hosts: these are followed where they prove by TLS who they are, as no Service of the cluster can for a name of the
internet, and where a rule names them. No credentials go there.
"""

from collections.abc import Collection
from typing import Final, NamedTuple
from urllib.parse import urljoin, urlsplit

from tdcs.api.source_uri import canonical_endpoint
from tdcs.decide.forbidden_addresses import internal_kind, internal_name, plain_address

MOST_REDIRECTIONS: Final = 5
REDIRECTIONS: Final = frozenset({301, 302, 303, 307, 308})


class Hop(NamedTuple):
    """The next address.

    Attributes:
        url: what is asked for next; empty where that is refused.
        own: whether it is of the source's own server, which is shown the credentials.
        checked: whether the addresses of its host are to be looked at before (`refused_address`).
        refusal: why it is not followed, as a clause.
    """

    url: str
    own: bool = False
    checked: bool = False
    refusal: str = ""


def next_hop(
    *, url: str, location: str, origin: str, host: str, allowed: Collection[str], proxied: bool = False
) -> Hop:
    """The target of a redirection.

    Args:
        url: what was asked for.
        location: header of the answer.
        origin: scheme, host and port of the source's own server, as it is reached.
        host: what that is called, where it is reached by an address; else empty.
        allowed: endpoints that rules name for the namespace.
        proxied: whether a proxy is asked, which looks up names: where others lead cannot be seen.
    """
    try:
        target = urljoin(url, location)
        parts = urlsplit(target)
        endpoint = canonical_endpoint(f"{parts.scheme}://{parts.netloc}")
        own_endpoint = canonical_endpoint(origin)
        name = canonical_endpoint(f"{own_endpoint.scheme}://{host}") if host else own_endpoint
    except ValueError:
        return Hop("", refusal="it redirects to something that is no address")
    path = parts._replace(scheme="", netloc="", fragment="").geturl() or "/"
    if endpoint in (own_endpoint, name):
        return Hop(f"{origin}{path}", own=True)
    plain = f"{endpoint}{path}"
    if str(endpoint) in allowed:
        return Hop(plain)
    where = f"it redirects to {endpoint}"
    if proxied:
        return Hop(
            "", refusal=f"{where}, which no rule in spec.sources names, as it must be where a proxy is asked"
        )
    if endpoint.scheme != "https":
        return Hop("", refusal=f"{where}, which has no TLS and no rule in spec.sources of the CacheCluster")
    if plain_address(endpoint.host) is not None or internal_name(endpoint.host):
        return Hop(
            "", refusal=f"{where}, which is no host of the internet, and no rule in spec.sources names it"
        )
    return Hop(plain, checked=True)


def refused_address(address: str) -> str:
    """Why a host with this address is not followed to, as a clause; empty where it is."""
    kind = internal_kind(address, internal=())
    return f"it redirects to a host with a {kind} address" if kind else ""
