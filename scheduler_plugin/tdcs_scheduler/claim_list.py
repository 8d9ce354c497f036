"""The list of all Datasets' claims, in a ConfigMap that the chart makes: the admission policy reads it.

CEL cannot look up what a claim is of, but it can look into a parameter of the policy. One object for all costs the API
server next to nothing a pod, one parameter for each Dataset of the namespace 0.2 ms each. It is looked at every minute,
so that what an upgrade, or a person, took out comes back.
"""

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from tdcs.api import names
from tdcs.kube.api import KubeApi
from tdcs.kube.errors import KubeError
from tdcs.model.kube_resources import CONFIG_MAPS

_log: Final = logging.getLogger(__name__)

CHECK_SECONDS: Final = 60.0
RETRY_SECONDS: Final = 2.0

# Many Datasets may be created at a time: one write for all of them.
_GATHER_SECONDS: Final = 0.05

# A ConfigMap has at most 1 MiB.
MOST_BYTES: Final = 1_000_000

# So many namespaces are named in the log.
_NAMED: Final = 10


class ClaimList:
    """Keeps the ConfigMap of claims, which the admission policy reads.

    `datasets`: gives those that there are, as `namespace/name`.
    `on_left_out`: called with the number of those that had no room, whenever they are counted.
    """

    def __init__(
        self,
        *,
        api: KubeApi,
        namespace: str,
        datasets: Iterable[str],
        on_left_out: Callable[[int], None] = lambda count: None,
    ) -> None:
        self._api: Final = api
        self._namespace: Final = namespace
        self._datasets: Final = datasets
        self._on_left_out: Final = on_left_out
        self._left_out: Mapping[str, int] = {}
        # Set while there may be more or fewer Datasets than are written.
        self._changed: Final = asyncio.Event()

    def touch(self) -> None:
        self._changed.set()

    async def run(self) -> None:
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
        count = sum(left_out.values())
        self._on_left_out(count)
        if left_out and left_out != self._left_out:
            most = sorted(left_out.items(), key=lambda item: (-item[1], item[0]))[:_NAMED]
            named = ", ".join(f"{namespace} {missing}" for namespace, missing in most)
            more = f", and {len(left_out) - len(most)} more namespaces" if len(left_out) > len(most) else ""
            _log.warning(
                "the list of claims has no room for %d of %d: %s%s", count, count + len(data), named, more
            )
        self._left_out = left_out
        live = await self._api.get(CONFIG_MAPS, name=names.CLAIM_LIST, namespace=self._namespace)
        if live is None or (live.get("data") or {}) != data:
            obj = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": names.CLAIM_LIST, "namespace": self._namespace},
                "data": data,
            }
            await self._api.apply(CONFIG_MAPS, obj=obj)


def claim_keys(datasets: Iterable[str]) -> tuple[dict[str, str], dict[str, int]]:
    """The ConfigMap's data for the claims of these Datasets, `namespace.name` each, and how many of each namespace had
    no room. Each namespace gets one after the other, so that none takes the room of the others."""
    by_namespace = itertools.groupby(sorted(datasets), key=lambda dataset: dataset.partition("/")[0])
    waiting = {
        namespace: [dataset.replace("/", ".") for dataset in names] for namespace, names in by_namespace
    }
    in_turn = (key for turn in itertools.zip_longest(*waiting.values()) for key in turn if key is not None)
    listed, room = set[str](), MOST_BYTES
    for key in in_turn:
        room -= len(key) + len('"":"",')
        if room < 0:
            break
        listed.add(key)
    left_out = {namespace: sum(key not in listed for key in keys) for namespace, keys in waiting.items()}
    return dict.fromkeys(sorted(listed), ""), {name: count for name, count in left_out.items() if count}
