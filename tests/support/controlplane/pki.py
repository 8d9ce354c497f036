"""Certificates and kubeconfig files of one throw-away control plane.

Elliptic-curve keys: a set of RSA keys would cost seconds on a small machine.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path

import trustme
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

ADMINS = "system:masters"
SERVICE_IPS = "10.96.0.0/16"
API_SERVICE_IP = "10.96.0.1"
SERVICE_IPS_OF_IPV6 = "fd00:96::/112"
API_SERVICE_IP_OF_IPV6 = "fd00:96::1"
FRONT_PROXY_USER = "front-proxy-client"


class Pki:
    """Two authorities (clients and servers; the aggregation layer) and what they issue, in ``folder``."""

    def __init__(self, *, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._ca = trustme.CA(organization_name="tdcs test control plane", key_type=trustme.KeyType.ECDSA)
        # Must differ from the client authority, or any client could pose as the aggregator's proxy.
        self._front_proxy_ca = trustme.CA(organization_name="tdcs aggregator", key_type=trustme.KeyType.ECDSA)
        self.ca = self._write("ca.crt", self._ca.cert_pem.bytes())
        self.ca_key = self._write("ca.key", self._ca.private_key_pem.bytes())
        self.front_proxy_ca = self._write("front-proxy-ca.crt", self._front_proxy_ca.cert_pem.bytes())

        server = self._ca.issue_cert(
            "127.0.0.1",
            "::1",
            "localhost",
            API_SERVICE_IP,
            API_SERVICE_IP_OF_IPV6,
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            common_name="control-plane",
            key_type=trustme.KeyType.ECDSA,
        )
        self.server, self.server_key = self._pair("server", server)
        proxy = _client_certificate(self._front_proxy_ca, user=FRONT_PROXY_USER)
        self.front_proxy, self.front_proxy_key = self._pair("front-proxy-client", proxy)

        signing = ec.generate_private_key(ec.SECP256R1())
        self.service_account_key = self._write(
            "service-account.key",
            signing.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.TraditionalOpenSSL,
                serialization.NoEncryption(),
            ),
        )
        self.service_account_public = self._write(
            "service-account.pub",
            signing.public_key().public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            ),
        )

    def client_kubeconfig(self, *, path: Path, server: str, user: str, group: str | None = None) -> Path:
        """Write a kubeconfig with a fresh client certificate of ``user`` (in ``group``)."""
        issued = _client_certificate(self._ca, user=user, group=group)
        identity = {
            "client-certificate-data": _base64(issued.cert_chain_pems[0].bytes()),
            "client-key-data": _base64(issued.private_key_pem.bytes()),
        }
        return self.write_kubeconfig(path=path, server=server, user=user, identity=identity)

    def write_kubeconfig(self, *, path: Path, server: str, user: str, identity: Mapping[str, str]) -> Path:
        """Write a self-contained kubeconfig; ``identity`` is its user entry (certificate and key, or token)."""
        cluster = {"server": server, "certificate-authority-data": _base64(self.ca.read_bytes())}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": user, "user": dict(identity)}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
        }
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(config))
        return path

    def _pair(self, name: str, issued: trustme.LeafCert) -> tuple[Path, Path]:
        certificate = self._write(f"{name}.crt", issued.cert_chain_pems[0].bytes())
        return certificate, self._write(f"{name}.key", issued.private_key_pem.bytes())

    def _write(self, name: str, content: bytes) -> Path:
        path = self._folder / name
        path.touch(mode=0o600)
        path.write_bytes(content)
        return path


def _client_certificate(ca: trustme.CA, *, user: str, group: str | None = None) -> trustme.LeafCert:
    # A name that nobody looks at: without one the list of names is empty, yet critical, and
    # Go's verifier refuses such a certificate.
    return ca.issue_cert(
        "client.invalid", common_name=user, organization_name=group, key_type=trustme.KeyType.ECDSA
    )


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
