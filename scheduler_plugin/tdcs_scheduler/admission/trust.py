"""That the API server trusts the webhook: the authority of its certificate, in a configuration that the chart makes.

It is looked at every minute, so that what an upgrade, or a person, took out comes back.
"""

import asyncio
import base64
import datetime
import logging
import ssl
from typing import Final

from tdcs.kube.api import KubeApi
from tdcs.kube.errors import KubeError
from tdcs.kube.resources import MUTATING_WEBHOOKS
from tdcs_scheduler.admission.certificates import RENEWAL, load_into, make_certificates

_log: Final = logging.getLogger(__name__)

CHECK_SECONDS: Final = 60.0
RETRY_SECONDS: Final = 2.0


class Trust:
    """Keeps the webhook's certificates fresh, and its authority in the configurations of this name."""

    def __init__(self, *, api: KubeApi, configuration: str, hosts: tuple[str, ...]) -> None:
        self._api: Final = api
        self._configuration: Final = configuration
        self._hosts: Final = hosts
        self._authority = b""
        self._made = datetime.datetime.min.replace(tzinfo=datetime.UTC)
        self.context: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.renew()

    def renew(self) -> None:
        """Make new certificates if there are none, or the ones there are will end in a month."""
        now = datetime.datetime.now(datetime.UTC)
        if now - self._made < RENEWAL:
            return
        made = make_certificates(hosts=self._hosts, now=now)
        load_into(self.context, made)
        self._authority, self._made = made.authority, now

    async def run(self) -> None:
        """Look every minute, until cancelled."""
        while True:
            self.renew()
            pause = CHECK_SECONDS
            try:
                await self._publish()
            except KubeError as error:
                _log.warning("the API server does not know the webhook's certificate: %s", error)
                pause = RETRY_SECONDS
            await asyncio.sleep(pause)

    async def _publish(self) -> None:
        live = await self._api.get(MUTATING_WEBHOOKS, name=self._configuration)
        if live is None:
            _log.warning(
                "there is no MutatingWebhookConfiguration %s: the API server calls no webhook; upgrade the chart's "
                "release, which makes it",
                self._configuration,
            )
            return
        bundle = base64.b64encode(self._authority).decode()
        webhooks = live.get("webhooks") or ()
        if all(each["clientConfig"].get("caBundle") == bundle for each in webhooks):
            return
        patch = [{**each, "clientConfig": {**each["clientConfig"], "caBundle": bundle}} for each in webhooks]
        # A list is replaced as a whole: not over a change that was not seen.
        version = live["metadata"]["resourceVersion"]
        await self._api.merge(
            MUTATING_WEBHOOKS,
            name=self._configuration,
            patch={"metadata": {"resourceVersion": version}, "webhooks": patch},
        )
        _log.info("the API server knows the webhook's certificate")
