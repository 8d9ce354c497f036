"""The plugin's gRPC services: they check and translate, `tdcs.node.csi.node_volumes` does the work."""

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import grpc
from google.protobuf.message import Message

from tdcs import __version__
from tdcs.api import names
from tdcs.engine.descriptor_set import DescriptorSet
from tdcs.node.csi.node_volumes import NodeVolumes, TargetError
from tdcs.node.csi.volume import InvalidVolumeError, SourceNotReadyError, parse_volume

_log: Final = logging.getLogger(__name__)
_audit: Final = logging.getLogger(names.AUDIT_LOG)
"""Which pod was given which path of a cache, and when that went."""

# csi.v1 VolumeCapability.AccessMode: SINGLE_NODE_READER_ONLY and MULTI_NODE_READER_ONLY.
_READER_MODES: Final = frozenset({2, 3})

_STATUS: Final = {
    InvalidVolumeError: grpc.StatusCode.INVALID_ARGUMENT,
    SourceNotReadyError: grpc.StatusCode.UNAVAILABLE,
    TargetError: grpc.StatusCode.INTERNAL,
}

DESCRIPTOR_FILE: Final = "csi.desc"

if TYPE_CHECKING:
    Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]
else:  # generic for the type checker alone
    Context = grpc.aio.ServicerContext

Handler = Callable[[Any, Context], Awaitable[Message]]
"""One RPC: takes the request message and the call's context, returns the response message."""


_SET: Final = DescriptorSet(package=__package__, file=DESCRIPTOR_FILE)


def message(*, name: str) -> type[Message]:
    """The class of a message, by its full name such as `csi.v1.ProbeResponse`; KeyError if there is none."""
    return _SET.message(name)


def service(*, name: str, handlers: Mapping[str, Handler]) -> grpc.GenericRpcHandler:
    return _SET.service(name, handlers)


GetInfo = message(name="csi.v1.GetPluginInfoResponse")
GetCapabilities = message(name="csi.v1.GetPluginCapabilitiesResponse")
Probe = message(name="csi.v1.ProbeResponse")
BoolValue = message(name="csi.v1.BoolValue")
Published = message(name="csi.v1.NodePublishVolumeResponse")
Unpublished = message(name="csi.v1.NodeUnpublishVolumeResponse")
NodeCapabilities = message(name="csi.v1.NodeGetCapabilitiesResponse")
NodeInfo = message(name="csi.v1.NodeGetInfoResponse")
Plugin = message(name="pluginregistration.PluginInfo")
RegistrationAnswer = message(name="pluginregistration.RegistrationStatusResponse")


def identity_service() -> grpc.GenericRpcHandler:
    async def get_info(_request: Any, _context: Context) -> Message:
        return GetInfo(name=names.CSI_DRIVER, vendor_version=__version__)

    async def get_capabilities(_request: Any, _context: Context) -> Message:
        return GetCapabilities()

    async def probe(_request: Any, _context: Context) -> Message:
        return Probe(ready=BoolValue(value=True))

    return service(
        name="csi.v1.Identity",
        handlers={"GetPluginInfo": get_info, "GetPluginCapabilities": get_capabilities, "Probe": probe},
    )


def node_service(*, volumes: NodeVolumes, node: str) -> grpc.GenericRpcHandler:
    async def publish(request: Any, context: Context) -> Message:
        attributes = dict(request.volume_context)
        pod = "{}/{}".format(
            attributes.get("csi.storage.k8s.io/pod.namespace", "?"),
            attributes.get("csi.storage.k8s.io/pod.name", "?"),
        )
        call = f"publish of volume {request.volume_id} for pod {pod}"
        started = time.monotonic()
        try:
            _check_capability(request.volume_capability)
            _check_namespace(request.volume_id, attributes)
            volume = parse_volume(attributes=attributes)
            await volumes.publish(volume=volume, target=request.target_path)
        except tuple(_STATUS) as error:
            await _refuse(context, error, call=call, volume=request.volume_id)
        where = f"{volume.path} of CacheCluster {volume.cluster} at {request.target_path}"
        _audit.info("%s: %s in %.0f ms", call, where, _milliseconds(started))
        return Published()

    async def unpublish(request: Any, context: Context) -> Message:
        call = f"unpublish of volume {request.volume_id}"
        started = time.monotonic()
        try:
            await volumes.unpublish(target=request.target_path)
        except tuple(_STATUS) as error:
            await _refuse(context, error, call=call, volume=request.volume_id)
        _audit.info("%s: %s is gone in %.0f ms", call, request.target_path, _milliseconds(started))
        return Unpublished()

    async def get_capabilities(_request: Any, _context: Context) -> Message:
        return NodeCapabilities()

    async def get_info(_request: Any, _context: Context) -> Message:
        return NodeInfo(node_id=node)

    return service(
        name="csi.v1.Node",
        handlers={
            "NodePublishVolume": publish,
            "NodeUnpublishVolume": unpublish,
            "NodeGetCapabilities": get_capabilities,
            "NodeGetInfo": get_info,
        },
    )


def registration_service(*, endpoint: str, on_status: Callable[[bool, str], None]) -> grpc.GenericRpcHandler:
    """pluginregistration.Registration: tells kubelet that the plugin listens at the socket `endpoint`.

    `on_status` gets kubelet's verdict: whether it took the plugin, and if not, why.
    """

    async def get_info(_request: Any, _context: Context) -> Message:
        return Plugin(
            type="CSIPlugin", name=names.CSI_DRIVER, endpoint=endpoint, supported_versions=["1.0.0"]
        )

    async def notify(request: Any, _context: Context) -> Message:
        on_status(request.plugin_registered, request.error)
        return RegistrationAnswer()

    return service(
        name="pluginregistration.Registration",
        handlers={"GetInfo": get_info, "NotifyRegistrationStatus": notify},
    )


def _check_namespace(volume: str, attributes: Mapping[str, str]) -> None:
    """A Dataset's volume is for pods of its own namespace, whatever claim it was bound to."""
    owner, pod = names.volume_owner(volume), attributes.get("csi.storage.k8s.io/pod.namespace", "")
    if owner is None:
        raise InvalidVolumeError(
            "its volumeHandle is none of a Dataset, tdcs.NAMESPACE.NAME: create a Dataset in the pod's namespace, and "
            "mount the claim of its name"
        )
    if owner[0] != pod:
        raise InvalidVolumeError(
            f"the volume is for pods of namespace {owner[0]}, and this pod is in {pod or 'none that kubelet names'}: "
            "create a Dataset in the pod's namespace, and mount the claim of its name"
        )


def _check_capability(capability: Any) -> None:
    if capability.WhichOneof("access_type") == "block":
        raise InvalidVolumeError(
            f"driver {names.CSI_DRIVER} has files, not block devices; set volumeMode: Filesystem in the "
            "PersistentVolume"
        )
    if capability.access_mode.mode not in _READER_MODES:
        raise InvalidVolumeError(
            f"volumes of driver {names.CSI_DRIVER} can only be read; set accessModes: [ReadOnlyMany] in "
            "the PersistentVolume"
        )


async def _refuse(context: Context, error: Exception, *, call: str, volume: str) -> None:
    """End the call with the error's status; does not return. kubelet makes the text an event of the pod."""
    _log.warning("%s failed: %s", call, error)
    await context.abort(_STATUS[type(error)], f"{_owner(volume)}: {error}")


def _owner(volume: str) -> str:
    """What a volume shows, in the words of whoever mounts it."""
    owner = names.volume_owner(volume)
    return f"Dataset {'/'.join(owner)}" if owner else f"PersistentVolume {volume}"


def _milliseconds(started: float) -> float:
    return (time.monotonic() - started) * 1e3
