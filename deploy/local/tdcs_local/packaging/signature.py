"""The sums of a release's files, and their signature, which cosign and openssl verify.

cosign verify-blob --key release.pub --signature SHA256SUMS.sig --insecure-ignore-tlog=true SHA256SUMS
base64 -d SHA256SUMS.sig | openssl dgst -sha256 -verify release.pub -signature /dev/stdin SHA256SUMS
sha256sum --check SHA256SUMS
"""

import base64
import hashlib
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from tdcs_local.errors import LocalError

SUMS = "SHA256SUMS"
PUBLIC_KEY = "release.pub"


def write_sums(folder: Path) -> Path:
    """Write the SHA-256 of every file of a release, as `sha256sum` does."""
    sums = folder / SUMS
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path != sums)
    lines = []
    for path in files:
        with path.open("rb") as file:
            lines.append(f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {path.relative_to(folder)}\n")
    sums.write_text("".join(lines), encoding="utf-8")
    return sums


def sign(sums: Path, *, key_file: Path) -> list[Path]:
    """Write the signature of the sums and the public key next to them; gives both files.

    Args:
        sums: what is signed.
        key_file: a private key on the curve P-256 in PEM, without a passphrase, as `openssl ecparam -name prime256v1
            -genkey -noout` makes it. It is cosign's kind of key: `cosign import-key-pair` takes it.

    Raises:
        LocalError: the file holds no such key.
    """
    try:
        key = load_pem_private_key(key_file.read_bytes(), password=None)
    except (OSError, ValueError, TypeError) as error:
        raise _no_key(key_file, str(error)) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise _no_key(key_file, "it is not on the curve P-256")
    signature = sums.with_name(f"{sums.name}.sig")
    signature.write_bytes(base64.b64encode(key.sign(sums.read_bytes(), ec.ECDSA(SHA256()))) + b"\n")
    public = sums.with_name(PUBLIC_KEY)
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return [signature, public]


def _no_key(key_file: Path, why: str) -> LocalError:
    return LocalError(
        what=f"{key_file} is no key that can sign a release",
        why=why,
        remedy="make one with `openssl ecparam -name prime256v1 -genkey -noout -out release.key`",
    )
