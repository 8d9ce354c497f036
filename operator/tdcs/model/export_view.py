"""What Alluxio's master said of itself when it was asked last, as a value."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportView:
    """The master of one cache cluster.

    Attributes:
        paths: files and folders that it knows.
        most: that its heap has room for.
        share: how many more one agent may export; none: nothing further is exported.
        heap_bytes: how large its heap may be.
        silent_since: since when it has not answered, in seconds of a clock that only goes forward; None: it answers.
        silent_at: when it was asked last, likewise.
        failure: gRPC's word for why it does not answer.
    """

    paths: int = 0
    most: int = 0
    share: int = 0
    heap_bytes: int = 0
    silent_since: float | None = None
    silent_at: float = 0.0
    failure: str = ""

    @property
    def silent_seconds(self) -> float:
        """For how long it has not answered; zero when it does."""
        return 0.0 if self.silent_since is None else self.silent_at - self.silent_since
