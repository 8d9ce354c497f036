"""Each sentence that a machine may be refused with, and that a good machine is not."""

from dataclasses import replace

import pytest

from tdcs_local import preflight
from tdcs_local.errors import LocalError
from tdcs_local.paths import CHECKOUT
from tdcs_local.preflight import GIB, Disk, Facts

GOOD = Facts(
    root=True,
    apt=True,
    lacking_packages=(),
    engine="answers",
    engine_version=(20, 10, 24),
    fuse=True,
    disks=(Disk(purpose="programs (TDCS_CACHE)", path="/cache", free=50 * GIB),),
    memory=16 * GIB,
    cold=True,
    go=True,
    port=None,
    port_taken=False,
    foreign_contexts=(),
)


def test_a_good_machine_has_no_problem() -> None:
    assert preflight.problems(GOOD) == []
    preflight.require(GOOD)


def test_what_was_looked_at_is_said_of_good_machines_and_bad_ones() -> None:
    assert preflight.described(GOOD) == [
        "container engine: answers, version 20.10.24 (20.10 or newer; root can install and start one)",
        "memory: 16.0 GiB (at least 4; 7 are good)",
        "disk for programs (TDCS_CACHE): 50.0 GiB left in /cache (at least 25)",
        "/dev/fuse: there",
        "packages: all there",
        "Go: there, and needed",
    ]
    bad = replace(
        GOOD, engine="absent", engine_version=(), lacking_packages=("iptables",), port=6443, port_taken=True
    )
    lines = preflight.described(bad)
    assert lines[0] == "container engine: absent (20.10 or newer; root can install and start one)"
    assert {"packages: lacks iptables", "port 6443: taken"} <= set(lines)


def test_the_readme_asks_for_the_disk_and_memory_that_are_checked() -> None:
    readme = (CHECKOUT / "README.md").read_text()
    needs = f"({preflight.LEAST_MEMORY // GIB} at least), {preflight.COLD_DISK // GIB} GiB of free disk"
    assert needs in readme


@pytest.mark.parametrize(
    ("facts", "what", "remedy"),
    [
        pytest.param(
            replace(GOOD, root=False, engine="denied"),
            "may not use it",
            "usermod -aG docker",
            id="no docker rights",
        ),
        pytest.param(
            replace(GOOD, root=False, engine="absent"),
            "only root can start",
            "systemctl start docker",
            id="no engine",
        ),
        pytest.param(
            replace(GOOD, engine_version=(19, 3)), "docker 19.3 is too old", "20.10", id="old engine"
        ),
        pytest.param(
            replace(GOOD, root=False, lacking_packages=("mmdebstrap",)),
            "lacks mmdebstrap",
            "apt-get install mmdebstrap",
            id="packages missing and no root",
        ),
        pytest.param(
            replace(GOOD, disks=(Disk(purpose="programs (TDCS_CACHE)", path="/cache", free=2 * GIB),)),
            "/cache has 2.0 GiB left",
            "TDCS_CACHE",
            id="no disk for programs",
        ),
        pytest.param(
            replace(GOOD, disks=(Disk(purpose="containers", path="/var/lib/docker", free=0),)),
            "/var/lib/docker has 0.0 GiB left",
            "docker system df",
            id="no disk for containers",
        ),
        pytest.param(replace(GOOD, fuse=False), "no /dev/fuse", "modprobe fuse", id="no FUSE"),
        pytest.param(replace(GOOD, memory=3 * GIB), "3.0 GiB of memory", "larger machine", id="no memory"),
        pytest.param(replace(GOOD, go=False), "Go is not installed", "go.dev", id="no Go, nothing built"),
        pytest.param(
            replace(GOOD, port=6443, port_taken=True), "port 6443", "unset TDCS_API_PORT", id="occupied port"
        ),
        pytest.param(
            replace(GOOD, foreign_contexts=("production",)),
            "another cluster (production)",
            "mv ",
            id="kubeconfig",
        ),
    ],
)
def test_what_blocks_is_said_with_its_remedy(facts: Facts, what: str, remedy: str) -> None:
    (problem,) = preflight.problems(facts)
    assert problem.blocking
    assert what in problem.what
    assert remedy in problem.remedy
    with pytest.raises(LocalError) as caught:
        preflight.require(facts)
    assert what in str(caught.value)
    assert remedy in str(caught.value)


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param(replace(GOOD, engine="absent"), id="root starts the engine itself"),
        pytest.param(replace(GOOD, lacking_packages=("docker.io",)), id="root installs packages itself"),
        pytest.param(replace(GOOD, cold=False, go=False), id="what is built needs no compiler"),
        pytest.param(
            replace(GOOD, cold=False, disks=(Disk(purpose="containers", path="/", free=7 * GIB),)),
            id="less disk is needed where all is built",
        ),
    ],
)
def test_what_the_tool_can_mend_is_no_problem(facts: Facts) -> None:
    assert preflight.problems(facts) == []


def test_notes_do_not_block_and_come_last() -> None:
    facts = replace(GOOD, memory=5 * GIB, kubeconfig_variable="/home/me/.kube/config", fuse=False)
    found = preflight.problems(facts)
    assert [problem.blocking for problem in found] == [True, False, False]
    preflight.require(replace(facts, fuse=True))
