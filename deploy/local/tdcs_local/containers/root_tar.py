"""Reads files out of the tar of a root file system, without unpacking it."""

import posixpath
import re
import tarfile
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

from tdcs_local.containers.image_archive import Entry
from tdcs_local.errors import LocalError


class RootTar:
    """An open root tar; paths have no leading slash."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._tar = tarfile.open(file)  # noqa: SIM115 - closed by __exit__
        self._members = {posixpath.normpath(member.name): member for member in self._tar}

    def __enter__(self) -> "RootTar":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tar.close()

    def below(self, folder: str, *, pattern: str) -> list[str]:
        """Plain files and links below a folder, of which the path matches."""
        expression = re.compile(pattern)
        return sorted(
            name
            for name, member in self._members.items()
            if name.startswith(f"{folder}/") and expression.search(name) and not member.isdir()
        )

    def read(self, path: str) -> bytes:
        """A file's content; links are followed."""
        member = self._member(path)
        if member.issym():
            return self.read(posixpath.normpath(posixpath.join(posixpath.dirname(path), member.linkname)))
        data = self._tar.extractfile(member)
        if data is None:
            raise LocalError(what=f"{path} in {self._file} is no file")
        return data.read()

    def entries(self, paths: Iterable[str]) -> list[Entry]:
        """The files as entries of a layer; of a symbolic link, the link and what it names."""
        entries: dict[str, Entry] = {}
        todo = list(paths)
        while todo:
            path = todo.pop()
            if path in entries:
                continue
            member = self._member(path)
            if member.issym():
                target = member.linkname
                entries[path] = Entry(path=path, link=target)
                todo.append(posixpath.normpath(posixpath.join("/", posixpath.dirname(path), target))[1:])
            else:
                entries[path] = Entry(path=path, content=self.read(path), mode=member.mode & 0o755)
        return [entries[path] for path in sorted(entries)]

    def _member(self, path: str) -> tarfile.TarInfo:
        member = self._members.get(path)
        if member is None:
            raise LocalError(
                what=f"{self._file} has no file {path}",
                remedy="remove that file's folder from the cache, so that it is made again",
            )
        return member
