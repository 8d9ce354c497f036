"""Names are looked up as they are written: the search list of the operator's pod makes none a Service's."""

from typing import Any

import pytest

from tdcs.control.context import addresses_of


@pytest.mark.parametrize("written", ["minio.team-b", "minio.team-b."])
def test_a_name_is_looked_up_absolutely(written: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts: list[str] = []

    def getaddrinfo(host: str, *_: Any, **__: Any) -> list[Any]:
        hosts.append(host)
        return [(None, None, None, "", ("93.184.216.34", 0)), (None, None, None, "", ("93.184.216.34", 0))]

    monkeypatch.setattr("socket.getaddrinfo", getaddrinfo)
    assert addresses_of(written) == ["93.184.216.34"]
    assert hosts == ["minio.team-b."]
