"""What the variables of a job say of a worker."""

import pytest

from tdcs_train.peers.errors import PeerError
from tdcs_train.peers.rendezvous import membership_from

JOB = {"MASTER_ADDR": "train-0.train", "MASTER_PORT": "29500", "RANK": "1", "WORLD_SIZE": "2"}


def test_a_worker_is_what_the_variables_say() -> None:
    membership = membership_from(JOB, facts={"plan": "a"}, timeout=3)
    assert (membership.master, membership.port, membership.rank, membership.world_size) == (
        "train-0.train",
        29500,
        1,
        2,
    )


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"RANK": ""}, "the variable RANK is not set"),
        ({"WORLD_SIZE": "two"}, "the variable WORLD_SIZE is 'two'; it must be a number"),
        ({"MASTER_PORT": "99999"}, "the variable MASTER_PORT is 99999; it must be a number from 1 to 65535"),
        ({"RANK": "-1"}, "the variable RANK is -1; it must be a number from 0, and below WORLD_SIZE, 2"),
        ({"RANK": "2"}, "the variable RANK is 2; .* below WORLD_SIZE, 2"),
        ({"RANK": "0", "WORLD_SIZE": "0"}, "the variable RANK is 0; .* below WORLD_SIZE, 0"),
    ],
)
def test_a_variable_that_cannot_be_is_named(changed: dict[str, str], reason: str) -> None:
    with pytest.raises(PeerError, match=reason):
        membership_from({**JOB, **changed}, facts={}, timeout=3)
