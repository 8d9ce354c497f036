"""What installs and removes TDCS on the local cluster."""

from tdcs_local.kind import release
from tdcs_local.paths import CHECKOUT


def test_a_release_is_cleared_of_every_kind_that_the_chart_defines() -> None:
    """Otherwise an uninstall is called complete while definitions stay."""
    defined = {file.stem.removeprefix("tdcs.io_") for file in (CHECKOUT / "crds").glob("*.yaml")}
    assert {f"{name}.tdcs.io" for name in defined} == {resource for resource, _ in release.CUSTOM_RESOURCES}
