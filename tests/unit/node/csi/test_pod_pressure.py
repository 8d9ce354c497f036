"""What the kernel says of how long pods waited for files, wherever kubelet has their control groups."""

from pathlib import Path

import pytest

from tdcs.node.csi.pod_pressure import PodPressures

POD = "0b0c3f4e-1c5a-4f0e-9d2b-6a7c8d9e0f11"
FLAT = POD.replace("-", "_")
TEXT = (
    "some avg10=0.00 avg60=0.00 avg300=0.00 total=2500000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"
)


@pytest.mark.parametrize(
    "group",
    [
        f"kubepods/burstable/pod{POD}",
        f"kubepods/pod{POD}",
        f"kubepods.slice/kubepods-pod{FLAT}.slice",
        f"kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{FLAT}.slice",
        f"kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod{FLAT}.slice",
        f"kubelet/kubepods/besteffort/pod{POD}",
    ],
)
def test_a_pods_group_is_found_as_each_driver_names_it(tmp_path: Path, group: str) -> None:
    (tmp_path / "system.slice").mkdir()
    folder = tmp_path / group
    folder.mkdir(parents=True)
    (folder / "io.pressure").write_text(TEXT)
    pressure = PodPressures(tmp_path).of(POD)
    assert pressure is not None
    assert pressure.waited == 2.5
    assert pressure.began == pytest.approx(folder.stat().st_ctime)


def test_a_pod_that_ended_or_a_kernel_that_does_not_count_gives_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "kubepods" / f"pod{POD}"
    folder.mkdir(parents=True)
    pressures = PodPressures(tmp_path)
    assert pressures.of(POD) is None  # cgroup v1 has no such file
    (folder / "io.pressure").write_text(TEXT)
    assert pressures.of(POD) is not None
    (folder / "io.pressure").write_text("")
    assert pressures.of(POD) is None  # switched off
    (folder / "io.pressure").unlink()
    folder.rmdir()
    assert pressures.of(POD) is None
    assert PodPressures(tmp_path / "absent").of(POD) is None
