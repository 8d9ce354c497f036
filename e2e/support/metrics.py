"""What the processes of TDCS say to Prometheus: asked inside of their pods, with Prometheus' certificate."""

import base64
import json

from tdcs_local.kind import release
from tdcs_local.kind.kubectl import Kubectl

SYSTEM = release.NAMESPACE
SECRET = "tdcs-trust-monitor"

_ASK = """
import http.client, json, os, socket, ssl, sys
given, port, host = json.load(sys.stdin), int(sys.argv[1]), sys.argv[2]
connection = socket.create_connection(("127.0.0.1", port), timeout=20)
if given:
    context = ssl.create_default_context(cadata=given["ca.crt"])
    memory = os.memfd_create("certificate")
    os.write(memory, (given["tls.crt"] + given["tls.key"]).encode())
    context.load_cert_chain(f"/proc/self/fd/{memory}")
    connection = context.wrap_socket(connection, server_hostname=host)
connection.sendall(b"GET /metrics HTTP/1.0\\r\\n\\r\\n")
answer = http.client.HTTPResponse(connection)
answer.begin()
assert answer.status == 200, answer.status
print(answer.read().decode())
"""


def certificate(kubectl: Kubectl) -> dict[str, str]:
    """Prometheus' certificate, key and authorities by the names of their files; none where there are none."""
    secret = kubectl.get("secret", SECRET, namespace=SYSTEM) or {}
    return {name: base64.b64decode(value).decode() for name, value in secret.get("data", {}).items()}


def metrics_of(kubectl: Kubectl, pod: str, *, container: str, port: int, host: str) -> str:
    """The metrics of a container of a system pod, which shows a certificate for `host`."""
    words = ("exec", "-i", pod, "-n", SYSTEM, "-c", container, "--", "python3", "-c", _ASK, str(port), host)
    return kubectl(*words, stdin=json.dumps(certificate(kubectl)))
