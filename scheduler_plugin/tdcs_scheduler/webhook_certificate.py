"""The certificate by which the API server knows the webhook: files of a Secret that the chart makes.

The chart also writes the authority into the webhook's configuration, so that no account of TDCS needs the right to
change one: such a right would reach every object of the cluster.
"""

import asyncio
import logging
import ssl
from pathlib import Path
from typing import Final

_log: Final = logging.getLogger(__name__)

CHECK_SECONDS: Final = 60.0


class CertificateError(Exception):
    """The files hold no certificate with its key."""


class CertificateFiles:
    """A server's context with the certificate of a folder, which is read again when its files change.

    Args:
        folder: has `tls.crt` and `tls.key`, both PEM.

    Raises:
        CertificateError: it has not.
    """

    def __init__(self, *, folder: Path) -> None:
        self.context: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._certificate: Final = folder / "tls.crt"
        self._key: Final = folder / "tls.key"
        self._loaded: tuple[bytes, bytes] | None = None
        self.load()

    def load(self) -> None:
        """Load the files into the context if they changed; open connections keep the old certificate.

        Raises CertificateError.
        """
        try:
            certificate_and_key = self._certificate.read_bytes(), self._key.read_bytes()
            if certificate_and_key == self._loaded:
                return
            self.context.load_cert_chain(self._certificate, self._key)
        except OSError as error:
            raise CertificateError(
                f"{self._certificate} and {self._key.name} are no certificate with its key: {error}; delete the "
                "webhook's Secret and upgrade the chart's release, which makes a new one"
            ) from error
        self._loaded = certificate_and_key

    async def run(self) -> None:
        """Look every minute, until cancelled."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            try:
                self.load()
            except CertificateError as error:
                _log.warning("the webhook keeps its certificate: %s", error)
