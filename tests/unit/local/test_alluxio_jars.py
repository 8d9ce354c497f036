"""Native libraries of other platforms are dropped from the jars, and nothing else."""

import zipfile
from pathlib import Path

import pytest

from tdcs_local import alluxio_jars


@pytest.mark.parametrize(
    ("entry", "foreign"),
    [
        ("librocksdbjni-linux64.so", False),
        ("librocksdbjni-linux64-musl.so", True),
        ("librocksdbjni-osx-arm64.jnilib", True),
        ("librocksdbjni-win64.dll", True),
        ("libjnifuse3.so", False),
        ("libjnifuse.dylib", True),
        ("net/jpountz/util/linux/amd64/liblz4-java.so", False),
        ("net/jpountz/util/linux/aarch64/liblz4-java.so", True),
        ("jni/x86_64-Linux/libjffi-1.2.so", False),
        ("jni/ppc-AIX/libjffi-1.2.a", True),
        ("META-INF/native/libnetty_transport_native_epoll_x86_64.so", False),
        ("alluxio/wire/Windows.class", False),
    ],
)
def test_which_entries_are_foreign(entry: str, foreign: bool) -> None:
    assert alluxio_jars.is_foreign(entry) is foreign


def test_a_jar_loses_its_foreign_libraries_and_keeps_the_rest(tmp_path: Path) -> None:
    jar = tmp_path / "some.jar"
    with zipfile.ZipFile(jar, "w") as new:
        new.writestr("META-INF/MANIFEST.MF", "Manifest-Version: 1.0\n")
        new.writestr("lib.dll", b"x" * 1000)
        new.writestr("liblinux64.so", b"elf")
    (tmp_path / "netty-osx-x86_64.jar").write_bytes(b"not even a zip file")
    alluxio_jars.finish(lib=tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["some.jar"]
    with zipfile.ZipFile(jar) as slim:
        assert slim.namelist() == ["META-INF/MANIFEST.MF", "liblinux64.so"]
        assert slim.read("liblinux64.so") == b"elf"
