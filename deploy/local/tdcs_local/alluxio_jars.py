"""Alluxio's jars without the native libraries of other platforms, and the packages that they need."""

import re
import zipfile
from pathlib import Path

COORDINATES = "maven-dependencies.txt"
"""Next to the jars: what Maven fetched them as (`dependency:list`), for bills of materials."""
_NATIVE = (".so", ".dll", ".jnilib", ".dylib", ".a")
# Alluxio's own FUSE library exists for Linux on x86-64 alone, so the others' libraries can go.
_FOREIGN = re.compile(
    r"aarch|arm|ppc|s390|mips|sparc|i386|linux32|musl|osx|macos|darwin|win|sunos|aix|bsd|\.dll$|\.jnilib$|\.dylib$|\.a$"
)


def requirements() -> list[str]:
    """Debian packages that fetch the jars (Maven) and run them (Java 17, libfuse 3)."""
    return ["maven", "openjdk-17-jre-headless", "fuse3", "libfuse3-3"]


def finish(*, lib: Path) -> None:
    """Drop the native libraries of other platforms from a folder of jars; about 140 MB become 90."""
    for jar in sorted(lib.glob("*.jar")):
        if re.search(r"-(osx|windows|linux-aarch)[\w-]*\.jar$", jar.name):
            jar.unlink()
            continue
        with zipfile.ZipFile(jar) as old:
            entries = [entry for entry in old.infolist() if not is_foreign(entry.filename)]
            if len(entries) == len(old.infolist()):
                continue
            slim = jar.with_suffix(".slim")
            with zipfile.ZipFile(slim, "w", zipfile.ZIP_DEFLATED) as new:
                for entry in entries:
                    new.writestr(entry, old.read(entry), compress_type=zipfile.ZIP_DEFLATED)
        slim.replace(jar)


def is_foreign(entry: str) -> bool:
    """Whether a jar's entry is a native library for another platform than Linux on x86-64."""
    return entry.endswith(_NATIVE) and _FOREIGN.search(entry.lower()) is not None
