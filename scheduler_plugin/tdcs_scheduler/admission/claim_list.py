"""The list of all Datasets' claims, in a ConfigMap that the chart makes: the admission policy reads it.

CEL cannot look up what a claim is of, but it can look into a parameter of the policy. One object for all costs the API
server next to nothing a pod, one parameter for each Dataset of the namespace 0.2 ms each. It is looked at every minute,
so that what an upgrade, or a person, took out comes back.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterable
from typing import Final

from tdcs.api import names
from tdcs.kube.api import KubeApi
from tdcs.kube.errors import KubeError
from tdcs.kube.resources import CONFIG_MAPS

_log: Final = logging.getLogger(__name__)

CHECK_SECONDS: Final = 60.0
RETRY_SECONDS: Final = 2.0

# Many Datasets may be created at a time: one write for all of them.
_GATHER_SECONDS: Final = 0.05

# A ConfigMap has at most 1 MiB.
_MOST_BYTES: Final = 1_000_000


class ClaimList:
    """Keeps the ConfigMap of claims, which the admission policy reads.

    `datasets`: gives those that there are, as `namespace/name`.
    """

    def __init__(self, *, api: KubeApi, namespace: str, datasets: Iterable[str]) -> None:
        self._api: Final = api
        self._namespace: Final = namespace
        self._datasets: Final = datasets
        # Set while there may be more or fewer Datasets than are written.
        self._changed: Final = asyncio.Event()

    def touch(self) -> None:
        """There may be a Dataset more or less."""
        self._changed.set()

    async def run(self) -> None:
        """Follow the Datasets until cancelled."""
        while True:
            pause = CHECK_SECONDS
            try:
                await self._publish()
            except KubeError as error:
                _log.warning("the list of claims is behind: %s", error)
                pause = RETRY_SECONDS
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._changed.wait()
                await asyncio.sleep(_GATHER_SECONDS)

    async def _publish(self) -> None:
        self._changed.clear()
        data, left_out = claim_keys(self._datasets)
        if left_out:
            _log.warning("a ConfigMap has no room for %d of %d claims", left_out, left_out + len(data))
        live = await self._api.get(CONFIG_MAPS, name=names.CLAIM_LIST, namespace=self._namespace)
        if live is None or (live.get("data") or {}) != data:
            obj = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": names.CLAIM_LIST, "namespace": self._namespace},
                "data": data,
            }
            await self._api.apply(CONFIG_MAPS, obj=obj)


def claim_keys(datasets: Iterable[str]) -> tuple[dict[str, str], int]:
    """The ConfigMap's data for the claims of these Datasets, `namespace.name` each, and how many had no room."""
    keys = sorted(dataset.replace("/", ".") for dataset in datasets)
    size, data = 0, {}
    for key in keys:
        size += len(key) + len('"":"",')
        if size > _MOST_BYTES:
            break
        data[key] = ""
    return data, len(keys) - len(data)
