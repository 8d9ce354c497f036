"""The version of a back end that is part of this package: it follows from its source files."""

import hashlib
from pathlib import Path


def version_of_sources(folder: Path) -> str:
    """A version that changes with any source file of a back end's folder, and of the modules beside it that it uses."""
    shared = [
        folder.parent / name for name in ("backend.py", "c_source.py", "checks.py", "graph.py", "patterns.py")
    ]
    digest = hashlib.sha256()
    for path in sorted([*folder.glob("*.py"), *folder.glob("*.cc"), *shared]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]
