"""The descriptor set that the engine ships is the one of the Alluxio that runs."""

import re
import zipfile
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2

from tdcs_labs.reference.alluxio_rights import alluxio_rights
from tdcs_local import alluxio_descriptors


@pytest.mark.threat("alluxio-rpc")
def test_the_table_of_rights_names_every_method_of_the_jars_protos(alluxio_home: Path) -> None:
    (jar,) = (alluxio_home / "lib").glob("alluxio-core-transport-*.jar")
    methods = set()
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if name.endswith(".proto"):
                text = re.sub(r"/\*.*?\*/|//[^\n]*", "", archive.read(name).decode(), flags=re.DOTALL)
                package = re.search(r"^package ([\w.]+);", text, re.MULTILINE)
                for service, body in re.findall(r"^service (\w+) \{(.*?)^\}", text, re.MULTILINE | re.DOTALL):
                    assert package is not None
                    methods |= {f"{package[1]}.{service}/{m}" for m in re.findall(r"\brpc\s+(\w+)", body)}
    assert len(methods) > 100
    assert set(alluxio_rights()) == methods


def test_the_shipped_descriptors_are_those_of_the_jars(alluxio_home: Path) -> None:
    shipped = descriptor_pb2.FileDescriptorSet.FromString(alluxio_descriptors.DESCRIPTORS.read_bytes())
    built = descriptor_pb2.FileDescriptorSet.FromString(
        alluxio_descriptors.descriptors(lib=alluxio_home / "lib")
    )
    assert {file.name: file for file in shipped.file} == {file.name: file for file in built.file}, (
        "run `python -m tdcs_local.alluxio_descriptors` and commit the result"
    )
