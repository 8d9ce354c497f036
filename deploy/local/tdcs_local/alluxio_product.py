"""What is particular about the product `alluxio`: jars without foreign native libraries, and the gRPC
descriptors.

`python -m tdcs_local.alluxio_product` writes the descriptor set that the engine ships
(`operator/tdcs/engine/alluxio/alluxio.desc`) anew from the protos inside Alluxio's own jar. Needed only when
the version in the pom changes; a test says so when it was forgotten.
"""

import re
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from tdcs_local import products
from tdcs_local.errors import LocalError
from tdcs_local.paths import CHECKOUT

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import DescriptorProto

DESCRIPTORS = CHECKOUT / "operator" / "tdcs" / "engine" / "alluxio" / "alluxio.desc"

# The services the engine calls; what they import comes with them.
PROTOS = (
    "grpc/block_master.proto",
    "grpc/block_worker.proto",
    "grpc/file_system_master.proto",
    "grpc/meta_master.proto",
)

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
            kept = [entry for entry in old.infolist() if not is_foreign(entry.filename)]
            if len(kept) == len(old.infolist()):
                continue
            slim = jar.with_suffix(".slim")
            with zipfile.ZipFile(slim, "w", zipfile.ZIP_DEFLATED) as new:
                for entry in kept:
                    new.writestr(entry, old.read(entry), compress_type=zipfile.ZIP_DEFLATED)
        slim.replace(jar)


def is_foreign(entry: str) -> bool:
    """Whether a jar's entry is a native library for another platform than Linux on x86-64."""
    return entry.endswith(_NATIVE) and _FOREIGN.search(entry.lower()) is not None


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
            remedy="build the jars first: python -m tdcs_local product alluxio",
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
        found = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    for file in found.file:
        # JSON names differ between compiler versions and nobody reads them
        for message in file.message_type:
            _drop_json_names(message)
    return found.SerializeToString(deterministic=True)


def _drop_json_names(message: "DescriptorProto") -> None:
    for field in message.field:
        field.ClearField("json_name")
    for nested in message.nested_type:
        _drop_json_names(nested)


def main() -> int:
    """Write the descriptor set; says whether it changed."""
    new = descriptors(lib=products.ensure("alluxio") / "lib")
    changed = not DESCRIPTORS.exists() or DESCRIPTORS.read_bytes() != new
    DESCRIPTORS.parent.mkdir(parents=True, exist_ok=True)
    DESCRIPTORS.write_bytes(new)
    print(f"{DESCRIPTORS.relative_to(CHECKOUT)}: {len(new)} bytes, {'changed' if changed else 'unchanged'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
