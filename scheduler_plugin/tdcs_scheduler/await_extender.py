"""`tdcs await-extender`: holds kube-scheduler back until the extender knows the data, for a bounded time.

After a restart of both there may be a backlog of pods. Those placed before the extender has listed the Datasets are
placed without regard to data. An extender that never starts must not stop scheduling, so the wait is bounded.
"""

import logging
import time
import urllib.error
import urllib.request
from typing import Final

import click

from tdcs.api import names

_log: Final = logging.getLogger(__name__)

_PAUSE: Final = 0.2


@click.command(name="await-extender")
@click.option("--url", required=True, help="The extender's /healthz.")
@click.option(
    "--at-most",
    default=30.0,
    show_default=True,
    type=click.FloatRange(min=0),
    help="Seconds after which it ends all the same.",
)
def command(*, url: str, at_most: float) -> None:
    """Wait until the extender knows the datasets, for a bounded time; ends well in any case."""
    logging.basicConfig(level=logging.INFO, format=names.LOG_LINE)
    started = time.monotonic()
    while answer := _ask(url):
        remaining = at_most - (time.monotonic() - started)
        if remaining <= 0:
            _log.warning(
                "the extender is not ready after %g s (%s): pods may be placed without it", at_most, answer
            )
            return
        time.sleep(min(_PAUSE, remaining))
    _log.info("the extender is ready after %.1f s", time.monotonic() - started)


def _ask(url: str) -> str:
    """Why the extender is not ready; empty when it is."""
    try:
        # No proxy of the environment: it is in the same pod.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(url, timeout=1.0):
            return ""
    except urllib.error.HTTPError as error:
        return error.read(200).decode(errors="replace").strip() or str(error)
    except OSError as error:
        return str(error)
