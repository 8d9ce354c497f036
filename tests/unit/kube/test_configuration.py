"""Where the API server is found, and what is said when it is not."""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.aio.config import incluster_config

from tdcs.kube import configuration as configuration_module
from tdcs.kube.configuration import ConfigurationError, load_access, proxy_for


def kubeconfig_in(folder: Path, *, name: str = "kubeconfig", **changes: Any) -> Path:
    """A kubeconfig; `changes` replace its top-level fields, and None removes one."""
    content: dict[str, Any] = {
        "current-context": "here",
        "contexts": [
            {"name": "here", "context": {"cluster": "one", "user": "me", "namespace": "team"}},
            {"name": "there", "context": {"cluster": "two", "user": "me"}},
        ],
        "clusters": [
            {"name": "one", "cluster": {"server": "https://one.example:6443"}},
            {
                "name": "two",
                "cluster": {"server": "https://two.example/k8s/", "insecure-skip-tls-verify": True},
            },
        ],
        "users": [{"name": "me", "user": {"token": "secret-token"}}],
    } | changes
    file = folder / name
    file.write_text(yaml.safe_dump({key: value for key, value in content.items() if value is not None}))
    return file


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No configuration but the one that a test makes."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setattr(configuration_module, "DEFAULT_KUBECONFIG", tmp_path / "default")


@pytest.fixture
def service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a pod's service account."""
    folder = tmp_path / "serviceaccount"
    folder.mkdir()
    for name, content in {
        "token": "first\n",
        "ca.crt": "a certificate",
        "namespace": "tdcs-system\n",
    }.items():
        (folder / name).write_text(content)
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(folder / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(folder / "ca.crt"))
    monkeypatch.setattr(configuration_module, "SERVICE_ACCOUNT_NAMESPACE", folder / "namespace")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    return folder


async def test_the_current_context_of_a_kubeconfig_says_who_asks_whom(tmp_path: Path) -> None:
    access = await load_access(kubeconfig=kubeconfig_in(tmp_path))
    assert access.configuration.host == "https://one.example:6443"
    assert access.namespace == "team"
    assert await access.authorization() == "Bearer secret-token"


async def test_another_context_can_be_chosen(tmp_path: Path) -> None:
    access = await load_access(kubeconfig=kubeconfig_in(tmp_path), context="there")
    assert (access.configuration.host, access.namespace) == ("https://two.example/k8s", None)
    assert access.configuration.verify_ssl is False


async def test_the_kubeconfigs_of_the_environment_are_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = kubeconfig_in(tmp_path, name="first", users=[])
    second = kubeconfig_in(tmp_path, name="second", clusters=[])
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join((str(tmp_path / "missing"), str(first), str(second))))
    access = await load_access()
    assert access.configuration.host == "https://one.example:6443"
    assert await access.authorization() == "Bearer secret-token"


def of_user(folder: Path, **fields: Any) -> Path:
    return kubeconfig_in(folder, users=[{"name": "me", "user": {"token": "secret-token", **fields}}])


async def test_a_user_that_is_another_one_asks_as_that_one(tmp_path: Path) -> None:
    file = of_user(
        tmp_path,
        **{
            "as": "alpha",
            "as-uid": "7",
            "as-groups": ["team-a", "team-b"],
            "as-user-extra": {"Reason/Why": ["on call", "ticket"]},
        },
    )
    access = await load_access(kubeconfig=file)
    assert access.impersonation == (
        ("Impersonate-User", "alpha"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "team-a"),
        ("Impersonate-Group", "team-b"),
        ("Impersonate-Extra-reason%2Fwhy", "on call"),
        ("Impersonate-Extra-reason%2Fwhy", "ticket"),
    )
    assert not (await load_access(kubeconfig=kubeconfig_in(tmp_path))).impersonation


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"as-groups": ["team-a"]}, "without as; name the user in as"),
        ({"as": "alpha", "as-groups": 5}, "as-groups is no list"),
        ({"as": "alpha", "as-user-extra": ["x"]}, "as-user-extra no map of lists"),
    ],
)
async def test_a_user_that_is_another_one_by_half_is_refused(
    tmp_path: Path, fields: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        await load_access(kubeconfig=of_user(tmp_path, **fields))


async def test_a_kubeconfig_comes_before_the_service_account(tmp_path: Path, service_account: Path) -> None:
    kubeconfig_in(tmp_path, name="default")
    assert (await load_access()).configuration.host == "https://one.example:6443"


async def test_without_a_kubeconfig_the_service_account_of_the_pod_is_used(service_account: Path) -> None:
    access = await load_access()
    assert (access.configuration.host, access.namespace) == ("https://[fd00::1]:443", "tdcs-system")
    assert await access.authorization() == "bearer first"


async def test_a_service_accounts_token_is_read_again_when_it_was_refused(service_account: Path) -> None:
    access = await load_access()
    (service_account / "token").write_text("second")
    refused = access.configuration
    await access.renew(refused=refused)
    assert await access.authorization() == "bearer second"
    (service_account / "token").write_text("third")
    await access.renew(refused=refused)  # another request got the same answer: it was done already
    assert await access.authorization() == "bearer second"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "cannot be used"),
        ("[]", "cannot be used"),
        ("{", "cannot be used"),
        ("current-context: here\n", "here"),
    ],
)
async def test_a_file_that_is_no_kubeconfig_is_named(tmp_path: Path, content: str, reason: str) -> None:
    file = tmp_path / "broken"
    file.write_text(content)
    with pytest.raises(ConfigurationError, match=reason) as refused:
        await load_access(kubeconfig=file)
    assert str(file) in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "context", "reason"),
    [
        ({"current-context": None}, None, "current-context"),
        ({}, "elsewhere", "elsewhere"),
        ({"clusters": []}, None, "one"),
        (
            {"users": [{"name": "me", "user": {"tokenFile": "/nonexistent/token"}}]},
            None,
            "/nonexistent/token",
        ),
    ],
)
async def test_what_a_kubeconfig_lacks_is_named(
    tmp_path: Path, changes: dict[str, Any], context: str | None, reason: str
) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        await load_access(kubeconfig=kubeconfig_in(tmp_path, **changes), context=context)


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("/nonexistent/plugin", "No such file or directory"),
        ("/bin/false", "process returned 1"),
        ("/bin/true", "failed to decode process output"),
    ],
)
async def test_an_exec_plugin_that_fails_is_named_with_its_reason(
    tmp_path: Path, program: str, reason: str
) -> None:
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": program}
    with pytest.raises(ConfigurationError, match=f"exec plugin {program} of the kubeconfig .* {reason}"):
        await load_access(
            kubeconfig=kubeconfig_in(tmp_path, users=[{"name": "me", "user": {"exec": plugin}}])
        )


async def test_a_missing_configuration_is_an_error_with_the_remedy() -> None:
    with pytest.raises(ConfigurationError, match="set KUBECONFIG, or run this in a pod"):
        await load_access()


async def test_a_kubeconfig_that_does_not_exist_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nonexistent/kubeconfig")
    with pytest.raises(ConfigurationError, match="/nonexistent/kubeconfig does not exist"):
        await load_access()


async def test_errors_of_a_kubeconfig_do_not_show_its_secrets(tmp_path: Path) -> None:
    broken = [{"name": "me", "token": "secret-token"}]
    with pytest.raises(ConfigurationError, match="Expected key user") as refused:
        await load_access(kubeconfig=kubeconfig_in(tmp_path, users=broken))
    assert "secret-token" not in str(refused.value)


@pytest.mark.parametrize(
    ("variables", "proxy"),
    [
        ({}, None),
        ({"https_proxy": "http://p:3128"}, "http://p:3128"),
        ({"all_proxy": "http://p:3128"}, "http://p:3128"),
        ({"http_proxy": "http://p:3128"}, None),
        ({"https_proxy": "http://p:3128", "no_proxy": "10.0.0.1,api.example"}, None),
    ],
)
def test_the_proxy_is_that_of_the_environment(
    variables: dict[str, str], proxy: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert proxy_for("https://api.example:6443") == proxy


def test_a_proxy_that_cannot_be_used_is_named_with_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "socks5://p:1080")
    monkeypatch.setenv("no_proxy", "")
    with pytest.raises(
        ConfigurationError, match=r"HTTPS_PROXY \(or ALL_PROXY\), or name api.example in NO_PROXY"
    ):
        proxy_for("https://api.example:6443")
