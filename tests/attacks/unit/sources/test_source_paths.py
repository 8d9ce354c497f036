"""Spellings of URIs, paths and links that try to read what is outside of a Dataset's source: none gives a byte."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tdcs.api.source_uri import canonical_source_uri
from tdcs.engine import confined_path
from tdcs.engine.confined_path import open_beneath, open_plain_folder
from tdcs.model.agent_state import SourceAccess
from tdcs.node.agent.mount.source_pieces import Extent, SourceFailureError
from tdcs.node.agent.mount.source_state import open_source

SECRET = b"outside of the allowed folder"

SPELLINGS = (
    "..",
    "../outside",
    "a/../../outside",
    "a/..",
    "./a",
    ".",
    "x\\..\\..\\outside",
    "..\\outside",
    "\\..\\outside",
    ".\t./outside",
    ".\t./.\t./outside",
    "\t../outside",
    "..\t/outside",
    "a\n/../outside",
    "\r..\\..\\outside",
    "a\x00/../outside",
    "a\x7f/../outside",
    ".. /outside",
    " ../outside",
    "..\u00a0/outside",
    "%2e%2e/outside",
    "%2E./outside",
    ".%2e/outside",
    "%252e%252e/outside",
    "%25252e%25252e/outside",
    "%2525252525252e./outside",
    "..%2foutside",
    "..%5coutside",
    "a%00b",
    "a%09/../outside",
    "\uff0e\uff0e/outside",
    "\u2024\u2024/outside",
    "\u2025/outside",
    ".\u200b./outside",
    "\u202e../outside",
    "..\uff0foutside",
    "a\uff0f..\uff0f..\uff0foutside",
    "..\uff3coutside",
    "..\uf05coutside",
    "a\u2028/../outside",
    "a?/../../outside",
    "a#/../../outside",
)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder with a file, next to one with a secret."""
    (tmp_path / "outside").write_bytes(SECRET)
    (tmp_path / "source" / "a").mkdir(parents=True)
    (tmp_path / "source" / "a" / "file").write_bytes(b"inside")
    return tmp_path / "source"


@pytest.mark.parametrize("spelling", SPELLINGS, ids=ascii)
@pytest.mark.parametrize("root", ["file:///nfs/a/", "s3://bucket/a/"])
@pytest.mark.threat("node-folders")
def test_a_uri_that_leads_elsewhere_in_some_reading_is_refused(root: str, spelling: str) -> None:
    with pytest.raises(ValueError, match=r"it holds|its piece"):
        canonical_source_uri(root + spelling)


@pytest.mark.parametrize("spelling", SPELLINGS, ids=ascii)
@pytest.mark.threat("node-folders")
def test_an_agent_reads_no_byte_by_such_a_uri(source: Path, spelling: str) -> None:
    with pytest.raises(SourceFailureError):
        reading(f"file://{source}/{spelling}", b"")


@pytest.mark.parametrize("spelling", SPELLINGS, ids=ascii)
@pytest.mark.parametrize("kernel", [True, False], ids=["openat2", "stepwise"])
@pytest.mark.threat("node-folders")
def test_an_agent_reads_no_byte_by_such_a_file_name(
    source: Path, spelling: str, kernel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confined_path, "has_openat2", lambda: kernel)
    with pytest.raises(SourceFailureError):
        reading(f"file://{source}", os.fsencode(spelling))


@pytest.mark.parametrize(
    "target",
    ["../outside", "{top}/outside", "a/../../outside", "/proc/self/root{top}/outside", "/etc/shadow"],
)
@pytest.mark.parametrize("kernel", [True, False], ids=["openat2", "stepwise"])
@pytest.mark.threat("links-through-agents")
def test_a_symbolic_link_out_of_a_folder_is_not_followed(
    source: Path, target: str, kernel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confined_path, "has_openat2", lambda: kernel)
    (source / "link").symlink_to(target.format(top=source.parent))
    (source / "folder").symlink_to(source.parent)
    for path in (b"link", b"folder/outside"):
        with pytest.raises(SourceFailureError) as refused:
            reading(f"file://{source}", path)
        assert refused.value.code == "Denied"
        assert "symbolic link that leads out" in str(refused.value)


@pytest.mark.threat("links-through-agents")
def test_a_folder_that_is_itself_a_link_is_not_read(source: Path) -> None:
    (source.parent / "planted").symlink_to(source.parent)
    with pytest.raises(SourceFailureError):
        reading(f"file://{source.parent}/planted", b"outside")


def test_a_link_that_stays_in_its_folder_is_followed(source: Path) -> None:
    (source / "link").symlink_to("a/file")
    assert reading(f"file://{source}", b"link", size=6) == b"inside"
    assert reading(f"file://{source}", b"a/file", size=6) == b"inside"


def test_percent_signs_of_a_folder_are_read_as_they_are_written(source: Path) -> None:
    (source / "100%41").mkdir()
    (source / "100A").mkdir()
    (source / "100%41" / "file").write_bytes(b"right")
    (source / "100A" / "file").write_bytes(b"wrong")
    assert reading(f"file://{source}/100%41", b"file", size=5) == b"right"


@pytest.mark.parametrize("path", [b"/etc/passwd", b"..", b"a/../..", b"a\0b"])
@pytest.mark.parametrize("kernel", [True, False], ids=["openat2", "stepwise"])
@pytest.mark.threat("node-folders")
def test_nothing_is_opened_outside_of_a_folder(
    source: Path, path: bytes, kernel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confined_path, "has_openat2", lambda: kernel)
    folder = open_plain_folder(os.fsencode(source))
    try:
        with pytest.raises(OSError) as refused:  # noqa: PT011 - the number says which
            open_beneath(folder, path, os.O_RDONLY, links=True)
        assert refused.value.errno == errno.EXDEV
    finally:
        os.close(folder)


def reading(uri: str, path: bytes, *, size: int = len(SECRET)) -> bytes:
    """What an agent reads of a file of a source."""
    content = bytearray()
    open_source(SourceAccess(uri=uri)).read(
        Extent(path=path, offset=0, length=size, size=size, tag=""), content.extend
    )
    return bytes(content)
