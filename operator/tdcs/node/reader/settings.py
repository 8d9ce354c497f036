"""What the processes of the remote-read client are given."""

from dataclasses import dataclass
from pathlib import Path

import click

from tdcs.api import names
from tdcs.options import FOLDER, PORT, SIZE, certificates, metrics_port, node_name, option


@dataclass(frozen=True, kw_only=True)
class FolderSettings:
    folder: Path = option(
        "The reader's folder on the node, the same for all of its parts.",
        default=Path(names.READER_ROOT),
        type=FOLDER,
        env="TDCS_READER",
    )
    trust: Path | None = certificates()


@dataclass(frozen=True, kw_only=True)
class HolderSettings(FolderSettings):
    """What the holder of the session is given."""

    node: str = node_name(default="")
    reserve: bool = option("Serve the file system while no reader does.", default=True)
    user: int | None = option(
        "Number of the user as whom readers run, and what serves while none does; root alone by default.",
        default=None,
        type=click.IntRange(1),
    )


@dataclass(frozen=True, kw_only=True)
class ReaderSettings(FolderSettings):
    node: str = node_name()
    buffer_bytes: int = option(
        "How much of what was fetched is kept in memory.",
        default=64 << 20,
        type=SIZE,
        flag="--buffer",
        chart="reader.buffer",
    )
    operator: str = option("HOST:PORT where the operator serves who holds what.", default="")
    health_port: int = option("Port of /healthz; 0: none.", default=0, type=PORT)
    metrics_port: int = metrics_port(default=0)
    patience_seconds: float = option(
        "Seconds after which a read that no agent and no source can answer fails.",
        default=30.0,
        type=click.FloatRange(min=0),
        flag="--patience",
    )
