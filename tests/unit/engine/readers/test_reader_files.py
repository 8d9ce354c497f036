"""What of the remote-read client's folder is its own, and what stays root's."""

import os
import socket
import stat
from pathlib import Path

import pytest

from tdcs.engine.reader_files import admit, give_files

USER = 65531

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


def owned(root: Path) -> set[str]:
    return {path.name for path in root.iterdir() if path.lstat().st_uid == USER}


@pytest.mark.threat("reader-taken")
def test_what_the_client_writes_is_its_own_and_the_folder_stays_roots(tmp_path: Path) -> None:
    (tmp_path / "versions").mkdir()
    (tmp_path / "last-number").write_text("a\n")
    for _ in range(2):
        give_files(tmp_path, user=USER)
        assert owned(tmp_path) == {
            "holders",
            "failures",
            "pod-waits",
            "readers",
            "keepers",
            "serving",
        }
    assert (tmp_path / "last-number").read_text() == "a\n"
    assert tmp_path.stat().st_uid == 0


@pytest.mark.threat("reader-taken")
def test_the_client_connects_to_a_socket_that_stays_roots(tmp_path: Path) -> None:
    path = tmp_path / "holder.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        admit(path, user=USER)
    found = path.stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (0, USER, 0o660)


@pytest.mark.parametrize("name", ["holders", "pod-waits"])
@pytest.mark.threat("reader-taken")
def test_a_link_in_the_place_of_a_file_is_refused(tmp_path: Path, name: str) -> None:
    own, outside = tmp_path / "own", tmp_path / "outside"
    own.mkdir()
    outside.mkdir() if name == "holders" else outside.touch()
    (own / name).symlink_to(outside)
    with pytest.raises(OSError, match=r"symbolic links|Not a directory"):
        give_files(own, user=USER)
    assert outside.stat().st_uid == 0
