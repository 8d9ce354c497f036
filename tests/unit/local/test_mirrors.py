"""The machine's way to packages, read from its own configuration."""

from tdcs_local import mirrors

DEB822 = """\
Types: deb
# a comment
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb deb-src
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main contrib

Types: deb
URIs: http://vendor.example/apt
Suites: stable
Components: main

Enabled: no
Types: deb
URIs: http://off.example/debian
Suites: bookworm
Components: main
"""


def test_mirrors_serve_another_release_and_vendors_are_left_out() -> None:
    known = mirrors.parse_sources(DEB822)
    key = "[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]"
    assert mirrors.sources_for("trixie", machine_sources=known, own_release="bookworm") == [
        f"deb {key} http://mirror.example/debian trixie main",
        f"deb {key} http://mirror.example/debian trixie-updates main",
        "deb http://mirror.example/debian-security trixie-security main",
    ]


def test_one_line_style_is_read_too() -> None:
    known = mirrors.parse_list(
        "# deb http://no.example/debian bookworm main\n"
        "deb [arch=amd64 signed-by=/k.gpg] http://mirror.example/debian bookworm main contrib\n"
        "deb-src http://mirror.example/debian bookworm main\n"
    )
    assert mirrors.sources_for("bookworm", machine_sources=known, own_release="bookworm") == [
        "deb [signed-by=/k.gpg] http://mirror.example/debian bookworm main"
    ]


def test_a_machine_that_is_no_debian_has_no_mirror_of_it() -> None:
    known = mirrors.parse_list("deb http://archive.example/ubuntu noble main")
    assert mirrors.sources_for("bookworm", machine_sources=known, own_release="") == []


def test_pip_settings_that_mean_something_elsewhere_are_taken() -> None:
    listing = (
        "global.index-url='https://pypi.example/simple'\n"
        ":env:.cert='/home/me/ca.pem'\n"
        ":env:.find-links='/opt/wheels'\n"
        "install.trusted-host='pypi.example'\n"
    )
    assert mirrors.pip_config(listing) == (
        "[global]\nindex-url = https://pypi.example/simple\ntrusted-host = pypi.example\n"
    )
    assert mirrors.pip_config(":env:.find-links='/opt/wheels'\n") == ""


def test_only_proxies_that_are_set_are_passed_on() -> None:
    env = {"http_proxy": "http://p:1", "HTTPS_PROXY": "", "PATH": "/bin"}
    assert mirrors.proxies(env=env) == {"http_proxy": "http://p:1"}
