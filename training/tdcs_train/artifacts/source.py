"""The generated source of an artifact: a text for people, that nothing runs and no digest covers."""

from pathlib import Path

from tdcs_train.artifacts.manifest import FILE, ArtifactError, Manifest, decode

SUFFIX = ".source.txt"


def source_name(library: str) -> str:
    """The name of the file beside the library, which has the library's digest in its name."""
    return library.removesuffix(".so") + SUFFIX


def generated_source(folder: str | Path) -> str:
    """The code of an artifact as TVM and the back ends wrote it.

    Args:
        folder: of the artifact, the one with its manifest.

    Raises:
        ArtifactError: There is no artifact, or none that has its source.
    """
    place = Path(folder)
    try:
        manifest = decode((place / FILE).read_bytes())
    except OSError as error:
        raise ArtifactError(
            f"{place} is no artifact: its {FILE} cannot be read ({error.strerror}); give the folder that "
            "tdcs-train compile prints"
        ) from error
    try:
        return (place / source_name(manifest.library.name)).read_text(errors="replace")
    except OSError as error:
        raise ArtifactError(f"{place} has no generated source: {_why(manifest)}") from error


def _why(manifest: Manifest) -> str:
    if manifest.library.name.endswith(".so"):
        return "it was made by an earlier version; compile the model again"
    return "only artifacts of TVM have one"
