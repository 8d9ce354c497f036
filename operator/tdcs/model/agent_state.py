"""What the operator and a cache agent say to each other: one declarative assignment per mount down, one small state up.

An agent runs next to each cache worker. The operator never names a block or a file: it speaks in slots (see
`tdcs.model.slots`), as bitmaps of 4,096 bits (512 bytes, slot 0 is the highest bit of the first byte), and of a
manifest by its digest. Every call is idempotent; an assignment replaces the one before it when its version is higher.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Annotated, Final, Literal, Protocol

import msgspec

from tdcs.model.file_blocks import NO_LARGE_FILE, LargeFile

SLOT_BYTES = 512
"""Length of a bitmap of slots in bytes."""
NO_SLOTS = bytes(SLOT_BYTES)
ALL_SLOTS = b"\xff" * SLOT_BYTES

LONGEST_NAME: Final = 4096
"""A manifest has no longer path."""
LONGEST_REASON: Final = 1 << 15
"""A message of the system names a path with up to six characters for each of its bytes."""

# What one process says is checked where another decodes it: these are no limits of the values that a process makes.
Bitmap = Annotated[bytes, msgspec.Meta(min_length=SLOT_BYTES, max_length=SLOT_BYTES)]
Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Name = Annotated[str, msgspec.Meta(max_length=LONGEST_NAME)]
Reason = Annotated[str, msgspec.Meta(max_length=LONGEST_REASON)]


class SourceAccess(msgspec.Struct, frozen=True, kw_only=True):
    """How an agent reads the source of a mount. Held in memory only, never written to a disk or a log.

    Attributes:
        uri: canonical, `s3://bucket/prefix` or `file:///folder`.
        options: `endpoint`, `region`, `pathStyle`, `requesterPays` as in `tdcs.model.cache_engine.Source`; of a web
            source also `host`, what it is called where `endpoint` has its address.
        session_token: of a key pair that is temporary; alone it is a bearer token of a web source.
        ca_bundle: authorities in PEM that are trusted for its store next to the public ones.
        redirects, proxy: as in `tdcs.model.cache_engine.Source`.
    """

    uri: str
    options: dict[str, str] = {}
    access_key_id: str = ""
    secret_access_key: str = ""
    session_token: str = ""
    ca_bundle: str = ""
    redirects: tuple[str, ...] = ()
    proxy: str = ""

    def __repr__(self) -> str:
        return f"SourceAccess({self.uri})"

    __str__ = __repr__


Pull = Literal["All", "Peers", "Nothing"]


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """Files that an agent shall hold: those under `paths` (empty: all) that have their blocks in `slots`.

    Attributes:
        name: stable, such as `Dataset vision/imagenet` or `Preload vision/first`; progress is reported by it.
        pull: `All`: what is missing is brought, from peers or the source. `Peers`: only what some peer holds is brought
            (a move away from a node that leaves); what no peer has is neither a failure nor work that is left.
            `Nothing`: what is there is kept and counted, nothing is brought (a load that waits or is suspended).
    """

    name: str
    slots: bytes
    paths: tuple[str, ...] = ()
    pull: Pull = "All"


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """Another agent that holds slots of the same mount, or will.

    Attributes:
        node: its node.
        address: `host:port` of its block service.
        slots: what it is assigned, or still holds.
        complete: those of them that it has reported complete; ask it for these first.
        cross_zone: whether it is known to be in another zone: what comes from there costs money in most clouds.
    """

    node: str
    address: str
    slots: bytes
    complete: bytes = NO_SLOTS
    cross_zone: bool = False


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """A comparison of what is on the disk with the source, once for each `id`.

    Attributes:
        percent: share of the files, chosen by slot; 100 for all.
        part: name of the part with the files that are meant; empty for all that is here.
    """

    id: str
    percent: int = 100
    part: str = ""


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """All that one agent is to know about one mount.

    Attributes:
        mount: engine path, `/datasets/<id>`.
        version: grows with each change; an agent keeps the highest it has seen, and answers with it and its `echo_of`.
        manifest: digest of the manifest to work by.
        manifest_urls: where it can be had, best first: agents that get it too, agents that have it, the operator.
        parts: what to hold; the union counts.
        origin: of the slots to hold, those that this agent reads from the source. The others come from `peers`, from
            the source only when no peer has given them for a bounded time.
        drop: blocks of these slots are removed here unless a part wants them. Slots in neither are left alone.
        moved: those of them that are on all nodes that shall hold them. Whoever has not heard of it yet asks here:
            they are removed only after `handover_seconds`, unless room is lacking.
        source: None when the credentials are not to be had now: nothing is read from the source then.
        bandwidth: bytes a second that this agent may read from the source for this mount; None for no limit.
        fill_bytes: what is read from the source for readers is kept here until so many bytes of the mount are here, as
            room allows; 0: it is not kept.
        early_files: how many files the manifest names when its listing goes on; 0: it is that of a whole listing.
    """

    mount: str
    version: int
    manifest: str
    manifest_urls: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()
    origin: bytes = NO_SLOTS
    drop: bytes = NO_SLOTS
    moved: bytes = NO_SLOTS
    handover_seconds: float = 0.0
    peers: tuple[Peer, ...] = ()
    source: SourceAccess | None = None
    bandwidth: int | None = None
    check: Check | None = None
    fill_bytes: int = 0
    early_files: int = 0


FailureCode = Literal[
    "Unreadable", "Missing", "Changed", "Denied", "BadName", "NoRoom", "Wrong", "SourceAway"
]


class FileFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A file that the agent cannot have for now, and why. It is tried again with growing pauses.

    Attributes:
        code: `Changed` and `Missing` call for a new listing; `SourceAway` says that the source gives no answer.
    """

    path: Name
    code: FailureCode
    reason: Reason


class FailureCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many files cannot be had for one reason, and how many of their bytes are missing."""

    files: Count = 0
    bytes: Count = 0


def echo_of(assignment: Assignment) -> str:
    """The digest by which an agent says which assignment it works by: of all that the assignment says but its number
    and the keys of the source, which no state is to tell of."""
    source = assignment.source
    if source is not None:
        source = msgspec.structs.replace(source, access_key_id="", secret_access_key="", session_token="")
    stripped = msgspec.structs.replace(
        assignment, version=0, source=source, handover_seconds=float(assignment.handover_seconds)
    )
    content = msgspec.msgpack.encode(stripped)
    return blake2b(content, digest_size=16).hexdigest()


class PartState(msgspec.Struct, frozen=True, kw_only=True):
    """How far an agent is with a part: bytes and files (a file counts where its first block belongs).

    Attributes:
        failed_bytes: those of the missing bytes that are of files that cannot be had for now. They stay counted while
            they are tried again, until a try succeeds: a part is done when `held_bytes + failed_bytes == wanted_bytes`.
    """

    name: Name
    wanted_bytes: Count = 0
    held_bytes: Count = 0
    wanted_files: Count = 0
    held_files: Count = 0
    failed_bytes: Count = 0


class CheckState(msgspec.Struct, frozen=True, kw_only=True):
    """How far a comparison is. Copies that differed were dropped and loaded again once; `wrong` differed again."""

    id: Name
    done: bool = False
    files: Count = 0
    bytes: Count = 0
    wrong: tuple[FileFailure, ...] = ()
    wrong_count: Count = 0


class MountState(msgspec.Struct, frozen=True, kw_only=True):
    """What of one mount is on an agent's disk.

    Attributes:
        version: of the assignment it works by; 0 when it has none since its start (then nothing is pulled or dropped).
        echo: which that is, see `echo_of`; empty when it has none. What is said here is the outcome of that one alone.
        manifest: digest it counts by; empty while it has no manifest.
        held_bytes: bytes of blocks of the manifest that are here, assigned or not.
        complete: slots of which every block is here (of all files, whatever the parts say).
        present: slots of which at least one block is here.
        parts: progress of each part of the assignment.
        failures: files that cannot be had for now, by the reason's code. All decisions are made by these counts.
        failing: slots with blocks that cannot be had here for now.
        failing_here: those of them with blocks that another node may have all the same: this one's way to the source
            fails, and not what the source has.
        source_away: whether the source gives this agent no answer.
        no_room: whether what is to be brought finds no room here.
        failed: some of the files that cannot be had, for people: how many are named depends on what else the agent has
            to say, so nothing is decided by them.
        source_bytes, peer_bytes: what was read from the source and from peers since the process began.
        cross_zone_bytes: those of the latter that came from other zones.
        source_rate, peer_rate: the same in bytes a second, over the last seconds.
        busy: whether something is still being pulled or dropped.
        fills: whether what is read from the source for readers is kept here now.
        early_files: that of the last assignment, also of one before the process began: what is here is of a listing
            that went on, and no version of the source is told by it.
    """

    mount: Name
    version: Count = 0
    echo: Name = ""
    manifest: Name = ""
    held_bytes: Count = 0
    complete: Bitmap = NO_SLOTS
    present: Bitmap = NO_SLOTS
    parts: tuple[PartState, ...] = ()
    failures: dict[FailureCode, FailureCount] = {}
    failing: Bitmap = NO_SLOTS
    failing_here: Bitmap = NO_SLOTS
    source_away: bool = False
    no_room: bool = False
    failed: tuple[FileFailure, ...] = ()
    source_bytes: Count = 0
    peer_bytes: Count = 0
    cross_zone_bytes: Count = 0
    source_rate: Count = 0
    peer_rate: Count = 0
    busy: bool = False
    check: CheckState | None = None
    fills: bool = False
    early_files: Count = 0

    @property
    def failed_count(self) -> int:
        """Files that cannot be had for now."""
        return sum(failure.files for failure in self.failures.values())


class AgentState(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent says of its node. The operator takes it as a whole or not at all: every field is checked.

    Attributes:
        instance: new with every start of the process.
        revision: grows with every change of what is said here; the long poll waits for another one.
        capacity_bytes: what the cache may hold on this disk.
        used_bytes: blocks of all mounts, bytes that only views keep alive included.
        kept_bytes: those that only views keep alive.
        disk_free_bytes: what the file system has left.
        address: `host:port` of its block service, for `Peer.address`; the operator's client fills it in.
        url: `http://host:port` of its HTTP service, for `Assignment.manifest_urls`; filled in likewise.
        mounts: by path.
        target: the best target that the node's processor runs, see `tdcs.api.targets`; empty where it has none.
    """

    node: Name
    instance: Name
    revision: Count
    capacity_bytes: Count = 0
    used_bytes: Count = 0
    kept_bytes: Count = 0
    disk_free_bytes: Count = 0
    address: Name = ""
    url: Name = ""
    mounts: dict[Name, MountState] = {}
    target: Name = ""


class FolderLimit(msgspec.Struct, frozen=True, kw_only=True):
    """A folder to count.

    Attributes:
        folder: its path on the node.
        files: so many files and folders may be there, which count as often as `block_count` and `folder_count` say.
        bytes: of all of them together; None: any.
        seconds: so long the count may take.
        exclude: patterns of gitignore, each with a slash at its end: folders that are not looked into.
        required: whether it is a failure that the folder is not there.
    """

    folder: str
    files: int
    seconds: float
    bytes: int | None = None
    exclude: tuple[str, ...] = ()
    required: bool = False


class FolderCount(msgspec.Struct, frozen=True, kw_only=True):
    """What is in a folder: all of it, or one file or folder more than may be there.

    Attributes:
        files: that were seen.
        counted: the same as limits count them, see `block_count`.
        largest: the one that counts the most, if that is more than once, by its path below the folder.
        folders: that were seen, the folder itself not among them, as limits count them, see `folder_count`.
        cut_off: whether the time was over before.
        failure: why not all of it can be counted; empty when it can.
        refused: whether that is for good: the folder is, or is behind, a symbolic link.
        unreadable: whether it is for want of a right to read a folder.
    """

    files: int = 0
    counted: int = 0
    largest: LargeFile = NO_LARGE_FILE
    folders: int = 0
    bytes: int = 0
    cut_off: bool = False
    failure: str = ""
    refused: bool = False
    unreadable: bool = False


class SourceToCount(msgspec.Struct, frozen=True, kw_only=True):
    """A source that an agent counts by a listing of its own.

    Attributes:
        mount: engine path.
        files: it is counted no further than so many files and folders, see `ListingLimit`.
        seconds: so long the count may take.
    """

    mount: str
    source: SourceAccess
    files: int
    seconds: float


class SourceCount(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent's listing of a source has found.

    Attributes:
        files, bytes: as `tdcs.model.listing_limit.SourcesSize` counts them; where it was not counted to its end because
            there is more, what it has at least.
        failure: why it could not be counted; empty when it could.
    """

    files: Count = 0
    bytes: Count = 0
    failure: Reason = ""


PAGE_LENGTH_BYTES: Final = 4
"""Before each page of a folder's listing stands in so many bytes, the lowest first, how long it is."""


class FolderPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some files of a folder, in no order.

    Attributes:
        files: path below the folder, length, and tag as a manifest has it.
        left_out: paths of what is no file, nor a link to one of the folder.
        end: of the last page: what is in the folder, or why that is not known. A listing without it was cut off.
    """

    files: list[tuple[bytes, int, bytes]] = []
    left_out: list[bytes] = []
    end: FolderCount | None = None


class AgentError(Exception):
    """An agent cannot be reached, or refused. The text names node, call, reason and remedy."""

    def __init__(self, text: str, *, node: str) -> None:
        super().__init__(text)
        self.node = node


class Agents(Protocol):
    """The agents of one cache cluster, as the operator sees them. Calls are bounded in time.

    `tdcs.engine.agent_client.HttpAgents` implements it, and so do the tests' agents in memory.
    """

    def states(self) -> Mapping[str, AgentState]:
        """The last state of every agent that is reachable now, by node. From memory; never waits."""
        ...

    async def assign(self, *, node: str, assignments: Sequence[Assignment]) -> None:
        """Give one agent its assignments for these mounts. Mounts that are not named keep theirs.

        Raises:
            AgentError: It is away, or has seen a higher version of one of them.
        """
        ...

    async def drop_mounts(self, *, node: str, mounts: Sequence[str]) -> None:
        """Let an agent drop all blocks of these mounts and forget them; unknown ones are success. Raises AgentError."""
        ...

    async def count_source(self, *, node: str, source: SourceToCount) -> SourceCount:
        """Have an agent list a source that is no folder, and count what it finds. Raises AgentError."""
        ...

    async def close(self) -> None: ...
