"""The shipped descriptor set is the one of the proto files, and serves what kubelet calls."""

from importlib.resources import files
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2
from grpc_tools import protoc

from tdcs.node.csi import csi_service

PROTO = Path(csi_service.__file__).parent / "proto"


def test_the_shipped_descriptor_set_is_compiled_from_the_proto_files(tmp_path: Path) -> None:
    compiled = tmp_path / "csi.desc"
    names = sorted(path.name for path in PROTO.glob("*.proto"))

    assert protoc.main(["protoc", f"-I{PROTO}", f"--descriptor_set_out={compiled}", *names]) == 0

    read = descriptor_pb2.FileDescriptorSet.FromString
    shipped = files("tdcs.node.csi").joinpath(csi_service.DESCRIPTOR_FILE).read_bytes()
    assert read(compiled.read_bytes()) == read(shipped), "run the command at the top of proto/csi.proto"


def test_a_request_has_the_wire_form_of_the_specification() -> None:
    message = csi_service.message(name="csi.v1.NodePublishVolumeRequest")(
        volume_id="v", target_path="/t", readonly=True, volume_context={"path": "p"}
    )

    # field number * 8 + wire type: volume_id 1, target_path 4, readonly 6, volume_context 8 (map entry: key
    # 1, value 2)
    assert (
        message.SerializeToString()
        == b"\x0a\x01v" + b"\x22\x02/t" + b"\x30\x01" + b"\x42\x09\x0a\x04path\x12\x01p"
    )


def test_fields_that_the_plugin_does_not_know_are_skipped() -> None:
    # publish_context = 2, staging_target_path = 3 and secrets = 7 of the specification
    unknown = b"\x12\x06\x0a\x01k\x12\x01v" + b"\x1a\x02/s" + b"\x3a\x06\x0a\x01k\x12\x01v"

    message = csi_service.message(name="csi.v1.NodePublishVolumeRequest").FromString(unknown + b"\x22\x02/t")

    assert message.target_path == "/t"  # type: ignore[attr-defined]


def test_a_service_without_a_handler_for_each_method_is_refused() -> None:
    with pytest.raises(ValueError, match="NotifyRegistrationStatus"):
        csi_service.service(name="pluginregistration.Registration", handlers={})
