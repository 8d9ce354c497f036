"""The descriptor set that the engine ships is the one of the Alluxio that runs."""

from pathlib import Path

from google.protobuf import descriptor_pb2

from tdcs_local import alluxio_descriptors


def test_the_shipped_descriptors_are_those_of_the_jars(alluxio_home: Path) -> None:
    shipped = descriptor_pb2.FileDescriptorSet.FromString(alluxio_descriptors.DESCRIPTORS.read_bytes())
    built = descriptor_pb2.FileDescriptorSet.FromString(
        alluxio_descriptors.descriptors(lib=alluxio_home / "lib")
    )
    assert {file.name: file for file in shipped.file} == {file.name: file for file in built.file}, (
        "run `python -m tdcs_local.alluxio_descriptors` and commit the result"
    )
