"""Which addresses and names of hosts lead into the cluster, to the node or to its cloud's metadata."""

from collections.abc import Container, Iterable, Sequence
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Final

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

METADATA: Final[tuple[Network, ...]] = tuple(
    map(
        ip_network,
        (
            *("100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32"),
            *("fd00:ec2::/64", "fd20:ce::/64", "fd00:c1::/64", "fd00:42::/64"),
        ),
    )
)
"""Where clouds answer their machines besides link-local addresses: Alibaba, Azure, Oracle; over IPv6 Amazon, Google,
Oracle, Scaleway."""

_IPV4_INSIDE: Final = tuple(map(IPv6Network, ("64:ff9b::/96", "64:ff9b:1::/48", "::/96")))
"""IPv6 addresses that end with an IPv4 one: those of translators (RFC 6052, RFC 8215), and the old compatible form."""
_PLAIN: Final = frozenset(map(IPv6Address, ("::", "::1")))
_SUFFIXES: Final = (".svc", ".cluster.local", ".local", ".localhost", ".internal", ".localdomain")


def parse_networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Networks such as `10.0.0.0/8`; a bare address is one of its own. Raises ValueError."""
    return tuple(ip_network(text, strict=False) for text in texts)


def plain_address(text: str) -> Address | None:
    """The address in a text, with embedded IPv4 addresses unwrapped from IPv6; None if it is no address."""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address.sixtofour is not None:
            return address.sixtofour
        if address not in _PLAIN and any(address in network for network in _IPV4_INSIDE):
            return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def forbidden_kind(text: str) -> str:
    """What an address is that no source may have, whoever allows it: of the node's own link or of its cloud. Else
    empty."""
    address = plain_address(text)
    if address is None:
        return "no address"
    if address.is_link_local or any(address in network for network in METADATA):
        return "link-local or metadata"
    if address.is_unspecified or address.is_multicast:
        return "unspecified or multicast"
    return ""


def internal_kind(text: str, *, internal: Sequence[Network], pods: Container[str] = ()) -> str:
    """What an address is that a source may have only when a rule names its endpoint; empty for any other.

    Args:
        text: the address.
        internal: networks of the cluster: its Services, pods and nodes.
        pods: addresses of pods, for those that are in none of these.
    """
    kind = forbidden_kind(text)
    if kind:
        return kind
    address = plain_address(text)
    if address is None or address.is_loopback:
        return "loopback"
    if address.is_reserved and isinstance(address, IPv4Address):
        return "reserved"
    inside = str(address) in pods or any(address in network for network in internal)
    return "cluster-internal" if inside else ""


def internal_name(host: str) -> bool:
    """Whether a host's name is one that only resolves inside the cluster, or on the machine."""
    return plain_address(host) is None and ("." not in host or f".{host}".endswith(_SUFFIXES))
