"""The store's control server: what the link and the buckets shall be, and what they have sent.

========================================  ==============================================================
``GET /healthz``                          200 when the link agent and the gateway answer, else 503
``GET /v1/status``                        rates, wire bytes, buckets with what they hold and have sent
``POST /v1/link``                         ``{"egress": "200mbit", "ingress": "unlimited"}``, either or both
``POST /v1/datasets/BUCKET``              ``{"files": 1000, "size": "100KiB", "seed": "1"}``: fill it
``POST /v1/datasets/BUCKET/archive``      a tar stream; ``?sha256=`` is its checksum, ``&parameters=``
                                          JSON that is kept in the manifest
``GET /v1/datasets/BUCKET``               the manifest without its files, and whether all are still ``whole``
``GET /v1/datasets/BUCKET/manifest``      the manifest
``DELETE /v1/datasets/BUCKET``            remove it with all that it has
``GET /metrics``                          Prometheus text
========================================  ==============================================================

Errors are answered as a Kubernetes Status with the sentence as its message. It has no login: it is reached
through the API server's service proxy, which asks for the right to it.
"""

import json
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO, Any

from .buckets import Buckets, summary
from .shaping import Link, WireBytes
from .state import load_link, load_odometer, save_link, save_odometer
from .units import format_rate, parse_rate, parse_sizes

APPLY_SECONDS = 10.0
READ_SECONDS = 1.0
Json = dict[str, Any]


class NotReady(RuntimeError):
    """The link did not take the wanted rates in time, or another container does not answer."""


class Control:
    """The operations behind the HTTP server; safe to call from several threads."""

    def __init__(self, *, root: Path, link_url: str, gateway_url: str) -> None:
        state = root / "state"
        self.link_file = state / "link.json"
        self._odometer_file = state / "odometer.json"
        self._link_url = link_url
        self._gateway_url = gateway_url
        self._odometer = load_odometer(self._odometer_file)
        self._counting = threading.Lock()
        self._filling = threading.Lock()
        self.buckets = Buckets(root=root)
        if not self.link_file.exists():
            save_link(self.link_file, Link())

    def healthy(self) -> bool:
        """Whether the other containers answer and the wanted rates hold."""
        try:
            observed = _get("link", self._link_url)
            _get("gateway", f"{self._gateway_url}/counters")
        except NotReady:
            return False
        return observed["error"] is None and _same(observed["applied"], load_link(self.link_file))

    def status(self) -> Json:
        """All there is to tell, JSON-ready. Rates in bits per second, None for unlimited."""
        observed, wire = self.count()
        sent = _get("gateway", f"{self._gateway_url}/counters")
        held = {manifest["bucket"]: manifest for manifest in self.buckets.summaries()}
        return {
            "link": {"wanted": asdict(load_link(self.link_file)), **observed, "wireBytes": asdict(wire)},
            "buckets": {
                name: {
                    **{
                        key: held.get(name, {}).get(key) for key in ("totalBytes", "totalFiles", "parameters")
                    },
                    "sentBytes": 0,
                    "gets": 0,
                    **sent.get(name, {}),
                }
                for name in sorted(held.keys() | sent.keys())
            },
        }

    def count(self) -> tuple[Json, WireBytes]:
        """Look at the link: what holds there, and the wire counters that outlive the pod."""
        with self._counting:
            observed = _get("link", self._link_url)
            wire = observed.pop("wireBytes")
            if wire is not None:
                advanced = self._odometer.advanced(WireBytes(**wire), link=observed["link"])
                if advanced != self._odometer:
                    save_odometer(self._odometer_file, advanced)
                    self._odometer = advanced
            return observed, self._odometer.total

    def set_link(self, rates: Mapping[str, str]) -> Json:
        """Set one or both rates and wait until they hold. Raises UnitError, NotReady, ValueError."""
        unknown = rates.keys() - {"egress", "ingress"}
        if unknown or not rates:
            raise ValueError(f"a link has egress and ingress, not {', '.join(sorted(unknown)) or 'nothing'}")
        link = replace(load_link(self.link_file), **{side: parse_rate(rate) for side, rate in rates.items()})
        save_link(self.link_file, link)
        end = time.monotonic() + APPLY_SECONDS
        while True:
            observed = _get("link", self._link_url)
            if _same(observed["applied"], link):
                return {"egress": format_rate(link.egress), "ingress": format_rate(link.ingress)}
            if time.monotonic() > end:
                raise NotReady(
                    f"the link still has {observed['applied']} after {APPLY_SECONDS:.0f} s "
                    f"({observed['error'] or 'no error reported'}): see the log of the container link"
                )
            time.sleep(0.02)

    def fill(self, bucket: str, parameters: Mapping[str, Any]) -> Json:
        """Fill a bucket from a seed; the summary. Raises BucketError, UnitError, ValueError."""
        try:
            files, size, seed = int(parameters["files"]), str(parameters["size"]), str(parameters["seed"])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"bucket {bucket}: to fill it, files, size and seed are needed ({error})"
            ) from error
        if not 1 <= files <= 2_000_000:
            raise ValueError(f"bucket {bucket}: files must be between 1 and 2,000,000, not {files}")
        with self._filling:
            manifest = self.buckets.fill_from_seed(bucket, files=files, sizes=parse_sizes(size), seed=seed)
        return summary(manifest)

    def fill_archive(self, bucket: str, *, parameters: Json, sha256: str, archive: IO[bytes]) -> Json:
        """Fill a bucket with a tar stream; the summary. Raises BucketError."""
        with self._filling:
            return summary(
                self.buckets.fill_from_archive(bucket, parameters=parameters, sha256=sha256, archive=archive)
            )

    def remove(self, bucket: str) -> Json | None:
        """Remove a bucket that was filled; its summary, None if there was none. Raises BucketError."""
        with self._filling:
            manifest = self.buckets.remove(bucket)
        return None if manifest is None else summary(manifest)

    def keep_counting(self, stop: Callable[[], bool]) -> None:
        """Read the wire counters every second, so that a pod's end loses at most the last one's bytes."""
        while not stop():
            try:
                self.count()
            except (NotReady, OSError) as error:
                print(f"control: counting: {error}", flush=True)
            time.sleep(READ_SECONDS)


def metrics(status: Json) -> str:
    """The status as Prometheus text."""
    link = status["link"]
    lines = [
        "# HELP tdcs_store_sent_bytes_total Content of objects sent, by bucket.",
        "# TYPE tdcs_store_sent_bytes_total counter",
        *(
            f'tdcs_store_sent_bytes_total{{bucket="{n}"}} {b["sentBytes"]}'
            for n, b in status["buckets"].items()
        ),
        "# HELP tdcs_store_wire_bytes_total Bytes of the S3 port on the wire, headers included.",
        "# TYPE tdcs_store_wire_bytes_total counter",
        *(f'tdcs_store_wire_bytes_total{{direction="{d}"}} {n}' for d, n in link["wireBytes"].items()),
        "# HELP tdcs_store_link_bits_per_second The rate the link is shaped to; +Inf for unlimited.",
        "# TYPE tdcs_store_link_bits_per_second gauge",
        *(
            f'tdcs_store_link_bits_per_second{{direction="{d}"}} {"+Inf" if rate is None else rate}'
            for d, rate in (link["applied"] or {}).items()
        ),
    ]
    return "\n".join(lines) + "\n"


def _same(applied: Json | None, link: Link) -> bool:
    return applied == asdict(link)


def _get(container: str, url: str) -> Json:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - a fixed address on loopback
            answer_body: Json = json.load(answer)
    except OSError as error:
        raise NotReady(
            f"the {container} container does not answer at {url} ({error}): see its log; it is restarted when it ended"
        ) from error
    return answer_body
