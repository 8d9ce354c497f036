"""The source of a release's certificates, and the names of their Secrets."""

from dataclasses import dataclass
from typing import Literal

from tdcs.trust.roles import Role

Provider = Literal["selfSigned", "existing", "certManager"]

MOUNT_PATH = "/etc/tdcs/trust"
"""Where a container finds its certificate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustSettings:
    """The administrator's settings for certificates.

    Attributes:
        provider: `selfSigned`: an authority of the release's own; `existing`: Secrets that the user gives, one
            for each role; `certManager`: such Secrets from cert-manager, which the chart asks for.
        prefix: of the names of Secrets that belong to the release: PREFIX-authority, PREFIX-reader and so on.
    """

    provider: Provider
    prefix: str

    def secret(self, *, role: Role, child: str = "") -> str:
        """The Secret of a process: of its role, or of the child that it is a part of."""
        if self.given or not child:
            return f"{self.prefix}-{role}"
        return f"{child}-{role}-trust"

    @property
    def given(self) -> bool:
        """Whether others provide the Secrets: the operator then only reads them."""
        return self.provider != "selfSigned"

    @property
    def authority(self) -> str:
        return f"{self.prefix}-authority"
