"""What a user can do about a pod that does not start, by the reason that the kubelet gives."""

from typing import Final

_CHANGE: Final = "to change the template, suspend the job first (spec.runPolicy.suspend)"

_REMEDIES: Final = {
    **dict.fromkeys(
        ("ErrImagePull", "ImagePullBackOff", "ImageInspectError", "RegistryUnavailable"),
        "check the image's name and tag, and imagePullSecrets where its registry asks for a login; "
        + _CHANGE,
    ),
    "InvalidImageName": "correct the image's name; " + _CHANGE,
    "ErrImageNeverPull": "load the image onto the node, or set imagePullPolicy IfNotPresent; " + _CHANGE,
    "CreateContainerConfigError": "make the Secret or ConfigMap that the template names, or correct the name; "
    + _CHANGE,
}


def remedy(reason: str) -> str:
    """What to do about it; empty where the reason alone does not say."""
    return _REMEDIES.get(reason, "")
