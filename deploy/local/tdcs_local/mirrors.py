"""What this machine knows about reaching packages, for what is built inside of containers.

Nothing of it is written into the repository: mirrors, certificates and pip's settings are read when something is
built, and end in the locally built base image, which is for this machine only.
"""

import functools
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tdcs_local import shell

APT_FOLDER = Path("/etc/apt")
OWN_CERTIFICATES = Path("/usr/local/share/ca-certificates")
PIP_SETTINGS = ("index-url", "extra-index-url", "trusted-host", "timeout", "default-timeout")
PROXY_VARIABLES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
_APT_OPTION = re.compile(r"^Acquire::(https?|ftp|Check-|Retries|ForceIP)", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class AptSource:
    """One archive: where it is, the suite as the machine names it, the key that signs it ("" for apt's own)."""

    uri: str
    suite: str
    signed_by: str

    def line(self) -> str:
        """The one-line form, with Debian's free software only."""
        option = f"[signed-by={self.signed_by}] " if self.signed_by.startswith("/") else ""
        return f"deb {option}{self.uri} {self.suite} main"


def parse_sources(text: str) -> list[AptSource]:
    """The binary archives of a ``.sources`` file (deb822)."""
    sources: list[AptSource] = []
    for stanza in re.split(r"\n\s*\n", text):
        fields: dict[str, str] = {}
        for line in stanza.splitlines():
            name, colon, value = line.partition(":")
            if colon and not line.startswith(("#", " ", "\t")):
                fields[name.strip().lower()] = value.strip()
        if "deb" not in fields.get("types", "").split() or fields.get("enabled", "yes").lower() == "no":
            continue
        sources += [
            AptSource(uri=uri, suite=suite, signed_by=fields.get("signed-by", ""))
            for uri in fields.get("uris", "").split()
            for suite in fields.get("suites", "").split()
        ]
    return sources


def parse_list(text: str) -> list[AptSource]:
    """The binary archives of a one-line-style file."""
    sources: list[AptSource] = []
    for line in text.splitlines():
        match = re.match(r"^deb\s+(?:\[(?P<options>[^]]*)]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)", line.strip())
        if match:
            key = re.search(r"signed-by=(\S+)", match["options"] or "")
            sources.append(AptSource(uri=match["uri"], suite=match["suite"], signed_by=key[1] if key else ""))
    return sources


def sources_for(release: str, *, machine_sources: Iterable[AptSource], own_release: str) -> list[str]:
    """The machine's mirrors of Debian, for another release: ``deb`` lines.

    Only archives of the machine's own release count (its suites are ``bookworm``, ``bookworm-updates``,
    ``bookworm-security``); what a vendor adds is left out. Empty where the machine is no Debian: then the
    tool that asks uses its built-in mirror.
    """
    suites = {own_release, f"{own_release}-updates", f"{own_release}-security"}
    lines = [
        AptSource(
            uri=source.uri, suite=release + source.suite[len(own_release) :], signed_by=source.signed_by
        ).line()
        for source in machine_sources
        if own_release and source.suite in suites
    ]
    return list(dict.fromkeys(lines))


def debian_sources(release: str) -> list[str]:
    """:func:`sources_for` this machine."""
    machine_sources: list[AptSource] = []
    for file in sorted([APT_FOLDER / "sources.list", *(APT_FOLDER / "sources.list.d").glob("*")]):
        if file.suffix == ".sources":
            machine_sources += parse_sources(file.read_text())
        elif file.suffix == ".list" and file.is_file():
            machine_sources += parse_list(file.read_text())
    return sources_for(release, machine_sources=machine_sources, own_release=_own_release())


@functools.cache
def apt_options() -> tuple[str, ...]:
    """The machine's settings of how apt reaches archives (proxies, checks of dates), as lines of apt.conf."""
    try:
        dump = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:
        return ()
    return tuple(line for line in dump.splitlines() if _APT_OPTION.match(line))


def own_certificates() -> list[Path]:
    """Certificate authorities that the machine's owner added."""
    return sorted(OWN_CERTIFICATES.rglob("*.crt")) if OWN_CERTIFICATES.is_dir() else []


def pip_config(listing: str) -> str:
    """A ``pip.conf`` of what ``pip config list`` shows and another system can use; "" if there is none."""
    values: dict[str, str] = {}
    for line in listing.splitlines():
        match = re.match(r"^(?:global|:env:|install)\.?\.(?P<name>[\w-]+)='(?P<value>.*)'$", line)
        if match and match["name"] in PIP_SETTINGS:
            values[match["name"]] = match["value"].replace("\\n", "\n ")
    if not values:
        return ""
    return "[global]\n" + "".join(f"{name} = {value}\n" for name, value in sorted(values.items()))


@functools.cache
def own_pip_config() -> str:
    """:func:`pip_config` of this machine."""
    listing = shell.capture(
        [sys.executable, "-m", "pip", "config", "list"],
        what="pip could not tell its settings, which images are built with",
        remedy="make the Python environment again: rm -r .venv && make venv",
    )
    return pip_config(listing)


def proxies(*, env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The proxy variables that are set."""
    return {name: env[name] for name in PROXY_VARIABLES if env.get(name)}


def architecture() -> str:
    """The machine's architecture as container images name it."""
    machine = platform.machine()
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)


def _own_release() -> str:
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return ""
    # a derivative's mirrors serve other packages under other names
    return release.get("VERSION_CODENAME", "") if release.get("ID") == "debian" else ""
