"""What a program is keyed by, and the sentences when one cannot be built."""

import re
from pathlib import Path

import pytest

from tdcs_local import programs
from tdcs_local.errors import LocalError
from tdcs_local.paths import LOCAL


def test_every_program_has_its_inputs_in_the_repository() -> None:
    for program in programs.PROGRAMS.values():
        match program:
            case programs.GoProgram():
                folder = program.folder
            case programs.MavenJars():
                folder = program.pom.parent
            case programs.NpmProgram():
                folder = program.folder
            case programs.JavaJar():
                folder = program.sources
        assert folder.is_dir(), program.name
        assert len(program.key()) == 16


@pytest.mark.parametrize(
    ("package", "module", "program"),
    [
        ("go.etcd.io/etcd/server/v3", "m", "server"),
        ("helm.sh/helm/v3/cmd/helm", "m", "helm"),
        ("./control-plane", "m", "control-plane"),
        (".", "tdcs.io/local/coredns", "coredns"),
        (".", "example.org/tool/v2", "tool"),
    ],
)
def test_programs_are_named_as_go_names_them(package: str, module: str, program: str) -> None:
    assert programs.go_program_name(package, module=module) == program


def test_versions_are_compared_as_numbers() -> None:
    assert programs.version_tuple("go1.26.8") == (1, 26, 8)
    assert programs.version_tuple("go1.9") < programs.version_tuple("go1.21")
    assert programs.version_tuple("20.10.24+dfsg1") == (20, 10, 24)
    assert programs.version_tuple("unknown") == ()


def test_an_unknown_program_is_answered_with_the_known_ones() -> None:
    with pytest.raises(LocalError) as caught:
        programs.ensure("etdc")
    assert "etcd" in str(caught.value)


def test_a_missing_go_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LocalError) as caught:
        programs.require_go("etcd")
    assert "Go is not installed" in str(caught.value)
    assert f"{programs.OLDEST_GO_TEXT} or newer" in str(caught.value)


def test_an_old_go_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = tmp_path / "go"
    go.write_text("#!/bin/sh\necho go1.19.8\n")
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(LocalError, match=r"go1\.19\.8 is too old"):
        programs.require_go("etcd")


def test_the_oldest_go_is_what_the_modules_ask_for() -> None:
    wanted = {
        file.parent.name: programs.version_tuple(re.findall(r"^go (\S+)$", file.read_text(), re.MULTILINE)[0])
        for file in (LOCAL / "go").glob("*/go.mod")
    }
    assert set(wanted) >= {"kubernetes", "etcd", "kind"}
    assert max(version[:2] for version in wanted.values()) == programs.OLDEST_GO


@pytest.mark.parametrize(
    ("version", "toolchain", "suffices"),
    [
        pytest.param("go1.26.8", "local", True, id="new enough"),
        pytest.param("go1.25.3", "auto", True, id="fetches a newer one by itself"),
        pytest.param("go1.25.3", "local", False, id="may not fetch a newer one"),
        pytest.param("go1.25.3", "path", False, id="may take a newer one from PATH only"),
        pytest.param("go1.20.1", "", False, id="cannot fetch"),
    ],
)
def test_which_go_suffices(version: str, toolchain: str, suffices: bool) -> None:
    assert programs.go_suffices(version=version, toolchain=toolchain) is suffices


def test_the_kubernetes_programs_carry_the_version_that_the_cluster_has() -> None:
    program = programs.PROGRAMS["kubernetes"]
    assert isinstance(program, programs.GoProgram)
    assert f"gitVersion={programs.KUBERNETES_VERSION}" in program.ldflags
    assert f"k8s.io/kubernetes {programs.KUBERNETES_VERSION}\n" in program.pins.read_text()


KUBERNETES = LOCAL / "go" / "kubernetes"


@pytest.mark.parametrize("gomod", [KUBERNETES / "go.mod", *sorted((KUBERNETES / "versions").glob("*.mod"))])
def test_a_release_of_kubernetes_has_all_of_its_modules_pinned_alike(gomod: Path) -> None:
    text = gomod.read_text()
    (version,) = re.findall(r"^\s*k8s\.io/kubernetes (v1\.\d+\.\d+)$", text, re.MULTILINE)
    staged = dict(re.findall(r"^\s*(k8s\.io/\S+) => \1 (\S+)$", text, re.MULTILINE))
    assert len(staged) > 25
    assert set(staged.values()) == {version.replace("v1.", "v0.")}
    assert gomod.with_suffix(".sum").is_file()
    if gomod.parent.name == "versions":
        assert version.startswith(f"v{gomod.stem}.")


def test_the_environment_chooses_among_the_pinned_releases_of_kubernetes() -> None:
    default = KUBERNETES / "go.mod"
    assert programs.kubernetes_gomod(env={}) == default
    minor = ".".join(programs.KUBERNETES_VERSION.removeprefix("v").split(".")[:2])
    assert programs.kubernetes_gomod(env={"TDCS_KUBERNETES": minor}).is_file()
    assert programs.kubernetes_gomod(env={"TDCS_KUBERNETES": "1.33"}) == KUBERNETES / "versions" / "1.33.mod"
    with pytest.raises(LocalError) as refusal:
        programs.kubernetes_gomod(env={"TDCS_KUBERNETES": "1.30"})
    assert str(refusal.value).splitlines() == [
        "Kubernetes 1.30 cannot be built",
        "  the environment variable TDCS_KUBERNETES names it, and no go.mod here pins it",
        "  try: name one of 1.33, 1.34, 1.36, 1.37, or unset TDCS_KUBERNETES",
    ]
