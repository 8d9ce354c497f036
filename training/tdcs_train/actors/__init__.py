"""Actors that hand registers to each other: credits are the flow control, and messages the only scheduler.

Source: OneFlow (arXiv 2110.15032).
"""

from tdcs_train.actors.account import ActorTimes, State
from tdcs_train.actors.plan import ActorPlan
from tdcs_train.actors.register import Register
from tdcs_train.actors.runtime import ActorError, Runtime
from tdcs_train.actors.task import END, Kind, RegisterSpec, Task
from tdcs_train.actors.validation import check

__all__ = [
    "END",
    "ActorError",
    "ActorPlan",
    "ActorTimes",
    "Kind",
    "Register",
    "RegisterSpec",
    "Runtime",
    "State",
    "Task",
    "check",
]
