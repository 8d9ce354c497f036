"""The addresses of a host, by this machine's resolver."""

import socket


def addresses_of(host: str) -> list[str]:
    """All addresses of a host. Blocks; raises OSError when it has none.

    The name is absolute: by the search list of the operator's pod `minio.team-b` would be a Service of the cluster.
    """
    found = socket.getaddrinfo(f"{host.removesuffix('.')}.", None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))
