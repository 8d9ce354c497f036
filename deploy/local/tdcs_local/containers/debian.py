"""Root file systems of Debian, made from packages by mmdebstrap and kept in the cache as tar files."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tdcs_local import cache, mirrors, shell
from tdcs_local.paths import log_file
from tdcs_local.progress import Reporter

KEYRING = Path("/usr/share/keyrings")
TAR = "rootfs.tar"


@dataclass(frozen=True, kw_only=True)
class Root:
    """What a root file system is made of.

    ``networked`` adds the machine's own way to packages. With ``extracted`` it has the files of these packages and of
    those that they need, and nothing is set up: for files that are used elsewhere.
    """

    name: str
    release: str
    packages: Sequence[str]
    networked: bool
    extracted: bool = False

    def key(self) -> str:
        """Changes with anything that changes the content, but not when Debian publishes updates."""
        parts: list[str | bytes] = [self.name, self.release, *self.packages, str(self.networked), "1"]
        if self.extracted:
            parts.append("extracted")
        if self.networked:
            parts += [*mirrors.debian_sources(self.release), *mirrors.apt_options(), mirrors.own_pip_config()]
            parts += [certificate.read_bytes() for certificate in mirrors.own_certificates()]
        return cache.digest(parts)


def ensure(root: Root, *, reporter: Reporter) -> Path:
    """The tar of a root file system, made now unless it is cached."""

    def build(scratch: Path) -> None:
        with reporter.step(f"make the Debian {root.release} root '{root.name}'") as step:
            log = log_file(f"root-{root.name}")
            log.unlink(missing_ok=True)
            step.detail = lambda: (shell.tail(log, lines=1) or "")[:60]
            _build(root, scratch, log)

    folder = cache.product(
        f"root-{root.name}",
        root.key(),
        build,
        on_wait=lambda: reporter.say(f"another process is making the root '{root.name}': waiting"),
    )
    return folder / TAR


def _build(root: Root, scratch: Path, log: Path) -> None:
    sources = mirrors.debian_sources(root.release)
    # below the scratch folder, which goes with the next attempt whatever ends this one
    with tempfile.TemporaryDirectory(dir=scratch) as name:
        extra = Path(name)
        extra.chmod(0o755)
        variant = "extract" if root.extracted else "minbase"
        command: list[str | Path] = ["mmdebstrap", f"--variant={variant}", "--components=main"]
        command += [f"--include={','.join(root.packages)}", f"--keyring={KEYRING}"]
        for where in ("man", "locale", "doc", "info", "lintian"):
            command.append(f"--dpkgopt=path-exclude=/usr/share/{where}/*")
        command.append("--dpkgopt=path-include=/usr/share/doc/*/copyright")
        # a root is made whole or not at all, so dpkg need not wait for the disk after each file
        command.append("--dpkgopt=force-unsafe-io")
        command += [f"--aptopt={option.rstrip(';')}" for option in mirrors.apt_options()]
        command += _customize(root, extra)
        source_list = extra / "sources.list"
        source_list.write_text("\n".join(sources) + "\n")
        command += [root.release, scratch / TAR, *([source_list] if sources else [])]
        shell.run(
            command,
            what=f"making a Debian {root.release} root with mmdebstrap failed",
            log=log,
            env={"TMPDIR": str(extra)},
            fetches=True,
            contained=True,  # a killed mmdebstrap would leave /proc and /sys mounted in its folder
            remedy="check that `apt-get update` works on this machine: its mirrors are used",
        )


def _customize(root: Root, extra: Path) -> list[str]:
    """Hooks that leave apt without lists, and a networked root with the machine's certificates and settings."""
    hooks = ['rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/apt/* "$1"/var/log/*.log "$1"/var/log/apt']
    if not root.networked:
        hooks.append('rm -f "$1"/etc/apt/sources.list "$1"/etc/apt/sources.list.d/*')
        return [f"--customize-hook={hook}" for hook in hooks]
    certificates = mirrors.own_certificates()
    hooks += [f"copy-in {certificate} {mirrors.OWN_CERTIFICATES}" for certificate in certificates]
    if certificates:
        hooks.append('chroot "$1" update-ca-certificates')
    (extra / "90machine").write_text("\n".join(mirrors.apt_options()) + "\n")
    hooks.append(f"copy-in {extra / '90machine'} /etc/apt/apt.conf.d")
    (extra / "pip.conf").write_text(mirrors.own_pip_config())
    hooks.append(f"copy-in {extra / 'pip.conf'} /etc")
    return [f"--customize-hook={hook}" for hook in hooks]
