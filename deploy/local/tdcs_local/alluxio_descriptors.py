"""The descriptor set with which the engine speaks to Alluxio, made from the protos inside Alluxio's own jar.

`python -m tdcs_local.alluxio_descriptors` writes `operator/tdcs/alluxio/alluxio.desc` again. Needed only when
the version in the pom changes; a test fails when it was forgotten.
"""

import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from tdcs_local import programs
from tdcs_local.errors import LocalError
from tdcs_local.paths import CHECKOUT

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import DescriptorProto

DESCRIPTORS = CHECKOUT / "operator" / "tdcs" / "alluxio" / "alluxio.desc"

# The services the engine calls; what they import comes with them.
PROTOS = (
    "grpc/block_master.proto",
    "grpc/block_worker.proto",
    "grpc/file_system_master.proto",
    "grpc/meta_master.proto",
    "grpc/metric_master.proto",
)


def descriptors(*, lib: Path) -> bytes:
    """The serialized FileDescriptorSet of the protos in the core-transport jar below `lib`.

    Raises:
        LocalError: No such jar, or the compiler refuses its protos.
    """
    from google.protobuf import descriptor_pb2
    from grpc_tools import protoc

    jars = sorted(lib.glob("alluxio-core-transport-*.jar"))
    if not jars:
        raise LocalError(
            what=f"no alluxio-core-transport jar in {lib}",
            remedy="build the jars first: python -m tdcs_local program alluxio",
        )
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(jars[0]) as jar:
        jar.extractall(folder, [name for name in jar.namelist() if name.endswith(".proto")])
        out = Path(folder) / "set.desc"
        code = protoc.main(
            ["protoc", f"-I{folder}", "--include_imports", f"--descriptor_set_out={out}", *PROTOS]
        )
        if code != 0:
            raise LocalError(
                what=f"protoc refused the protos of {jars[0].name}", remedy="see its output above"
            )
        file_set = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    for file in file_set.file:
        # JSON names differ between compiler versions and nothing reads them
        for message in file.message_type:
            _drop_json_names(message)
    return file_set.SerializeToString(deterministic=True)


def _drop_json_names(message: "DescriptorProto") -> None:
    for field in message.field:
        field.ClearField("json_name")
    for nested in message.nested_type:
        _drop_json_names(nested)


def main() -> int:
    """Write the descriptor set; says whether it changed."""
    new = descriptors(lib=programs.ensure("alluxio") / "lib")
    changed = not DESCRIPTORS.exists() or DESCRIPTORS.read_bytes() != new
    DESCRIPTORS.parent.mkdir(parents=True, exist_ok=True)
    DESCRIPTORS.write_bytes(new)
    print(f"{DESCRIPTORS.relative_to(CHECKOUT)}: {len(new)} bytes, {'changed' if changed else 'unchanged'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
