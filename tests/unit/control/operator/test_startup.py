"""A start waits for an API server that is away, and ends only where the server has refused for long."""

from collections.abc import Iterator

import pytest
from tests.unit.kube.fake import ScriptedApi, error

from tdcs.control.operator import startup
from tdcs.control.operator.startup import patiently, until_synced
from tdcs.kube.errors import ForbiddenError, KubeError, UnavailableError
from tdcs.kube.informer_set import InformerSet
from tdcs.model.kube_resources import PODS


class Clock:
    """Of which 50 s pass with every attempt."""

    now = 0.0

    def __call__(self) -> float:
        return self.now

    def attempt(self) -> None:
        self.now += 50.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(startup, "backoff", lambda failures: 0.001)
    monkeypatch.setattr(startup, "LOOK_SECONDS", 0.001)
    monkeypatch.setattr(startup, "_monotonic", clock)
    return clock


async def test_a_server_that_refuses_while_it_starts_after_a_long_absence_is_asked_on(clock: Clock) -> None:
    """One that was away for minutes knows no rights in its first seconds."""
    away, refused = error(UnavailableError), error(ForbiddenError)
    answers: Iterator[KubeError | str] = iter([*[away] * 20, refused, refused, "found"])

    async def ask() -> str:
        clock.attempt()
        answer = next(answers)
        if isinstance(answer, KubeError):
            raise answer
        return answer

    assert await patiently(ask) == "found"


async def test_a_server_that_refuses_again_and_again_ends_the_wait(clock: Clock) -> None:
    async def ask() -> str:
        clock.attempt()
        raise error(ForbiddenError)

    with pytest.raises(ForbiddenError):
        await patiently(ask)


class Looked(InformerSet):
    """Views with one problem after the other, each time somebody looks, and then none."""

    def __init__(self, clock: Clock, *problems: KubeError | None) -> None:
        super().__init__(api=ScriptedApi(), resource=PODS)
        self._clock = clock
        self._problems = iter(problems)

    def problem(self) -> KubeError | None:
        self._clock.attempt()
        try:
            return next(self._problems)
        except StopIteration:
            self._informers[0].synced.set()
            return None


async def test_views_that_are_refused_after_a_long_absence_are_waited_for(clock: Clock) -> None:
    await until_synced([Looked(clock, *[error(UnavailableError)] * 20, error(ForbiddenError), None)])


async def test_views_that_are_refused_for_long_end_the_wait(clock: Clock) -> None:
    refused = [error(ForbiddenError)] * 20
    with pytest.raises(ForbiddenError):
        await until_synced([Looked(clock, *refused)])


async def test_a_refusal_counts_from_its_own_beginning(clock: Clock) -> None:
    interrupted = [error(ForbiddenError), error(ForbiddenError), error(UnavailableError)] * 5
    await until_synced([Looked(clock, *interrupted)])
