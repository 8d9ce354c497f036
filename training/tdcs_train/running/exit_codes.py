"""How a worker ends, in the terms of a TrainingJob's failure policy."""

from tdcs_train.errors import InputError
from tdcs_train.peers.errors import PeerError

DONE = 0
FINAL = 2
"""What the user gave cannot be used; a restart ends the same way: `{action: FailJob, values: [2]}`."""
CRASHED = 1
"""An error of the program, of this worker or of another one: what Python ends with."""
PEER_LOST = 75
"""Another worker was lost, and this one could not go on: `{action: Ignore, values: [75, 143]}`."""
STOPPED = 143
"""Asked to stop (SIGTERM), after a checkpoint: as a program ends that the signal ends."""


def exit_code(error: InputError) -> int:
    """The code for an error: where another worker ended first, its end counts."""
    if not isinstance(error, PeerError) or error.is_final:
        return FINAL
    return CRASHED if error.is_crash else PEER_LOST
