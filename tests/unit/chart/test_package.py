"""What `helm package` makes of the chart."""

import tarfile
from pathlib import Path

from tests.unit.chart.conftest import CHART, Helm


def test_the_package_has_the_definitions_the_dashboard_and_the_alerts(helm: Helm, tmp_path: Path) -> None:
    helm.run("package", CHART, "--destination", tmp_path)
    (package,) = tmp_path.iterdir()
    with tarfile.open(package) as archive:
        names = set(archive.getnames())
    kinds = ("cacheclusters", "datasets", "preloads", "trainingjobs")
    expected = {f"tdcs/crds/tdcs.io_{kind}.yaml" for kind in kinds} | {
        "tdcs/alerts/tdcs.yaml",
        "tdcs/values.schema.json",
    }
    assert expected <= names
    assert not [name for name in names if "__pycache__" in name or name.endswith(".tgz")]
