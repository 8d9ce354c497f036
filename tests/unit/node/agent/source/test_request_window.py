"""How many requests a source is asked at a time, and which are made again."""

from __future__ import annotations

import random
import threading

import pytest

from tdcs.node.agent.mount.request_window import TRIES, PatientReader, RequestWindow
from tdcs.node.agent.mount.source_pieces import Extent, SourceFailureError, Write, unanswered

EXTENT = Extent(path=b"a", offset=0, length=3, size=3, tag="")


class Source:
    """Gives answers in turn: an error, or the bytes."""

    lanes = 16

    def __init__(self, *answers: SourceFailureError | bytes) -> None:
        self.answers = list(answers)
        self.asked = 0

    def read(self, extent: Extent, write: Write) -> None:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, SourceFailureError):
            raise answer
        write(memoryview(answer))


def read(source: Source, window: RequestWindow | None = None) -> tuple[bytes, list[float]]:
    """What a patient reader gives of it, and its pauses."""
    pauses, content = list[float](), bytearray()
    PatientReader(source, window or RequestWindow(16), sleep=pauses.append).read(EXTENT, content.extend)
    return bytes(content), pauses


@pytest.mark.parametrize("status", [0, 429, 500, 503, 504])
def test_a_request_without_an_answer_is_made_again_after_pauses_that_grow_and_differ(status: int) -> None:
    source = Source(unanswered("no", status=status), unanswered("no", status=status), b"abc")
    content, pauses = read(source)
    assert (content, source.asked) == (b"abc", 3)
    assert 0.025 <= pauses[0] <= 0.05 <= pauses[1] <= 0.1
    assert len({read(Source(unanswered("no"), b"abc"))[1][0] for _ in range(9)}) == 9


def test_it_is_given_back_after_some_tries_and_says_what_was_answered_last() -> None:
    source = Source(unanswered("503 SlowDown", status=503))
    with pytest.raises(SourceFailureError, match="SlowDown") as caught:
        read(source)
    assert (source.asked, caught.value.busy) == (TRIES, True)


@pytest.mark.parametrize("code", ["Missing", "Changed", "Denied", "BadName"])
def test_a_definite_answer_is_an_answer(code: str) -> None:
    window, source = RequestWindow(16), Source(SourceFailureError(code, "why"))  # type: ignore[arg-type]
    with pytest.raises(SourceFailureError):
        read(source, window)
    assert source.asked == 1
    assert window.size == 16


def test_what_has_begun_to_come_is_not_asked_for_again() -> None:
    class Breaks(Source):
        def read(self, extent: Extent, write: Write) -> None:
            write(memoryview(b"a"))
            super().read(extent, write)

    source = Breaks(unanswered("it broke off"))
    with pytest.raises(SourceFailureError):
        read(source)
    assert source.asked == 1


def test_a_round_of_refusals_halves_the_window_once_and_answers_widen_it() -> None:
    window = RequestWindow(16)
    number = window.round
    for _ in range(16):
        window.refused(number)
    assert window.size == 8
    window.refused(window.round)
    assert window.size == 4
    for _ in range(8):
        window.answered()
    assert window.size == 8
    for _ in range(10):
        window.refused(window.round)
    assert window.size == 1
    for _ in range(1000):
        window.answered()
    assert window.size == 32


def test_a_source_that_gives_nothing_at_all_is_not_asked_again_by_each_request() -> None:
    window = RequestWindow(1)
    source = Source(unanswered("refused"))
    with pytest.raises(SourceFailureError):
        read(source, window)
    assert source.asked == 1


def test_no_more_requests_are_made_than_the_window_has_and_programs_do_not_wait_for_it() -> None:
    window, most, running, lock = RequestWindow(16), 0, 0, threading.Lock()
    for _ in range(3):
        window.refused(window.round)
    free = threading.Event()

    class Slow(Source):
        def read(self, extent: Extent, write: Write) -> None:
            nonlocal most, running
            with lock:
                running += 1
                most = max(most, running)
            free.wait(10)
            with lock:
                running -= 1
            write(memoryview(b"abc"))

    source = Slow()
    reader = PatientReader(source, window)
    threads = [
        threading.Thread(target=reader.read, args=(EXTENT, lambda data: None), daemon=True) for _ in range(16)
    ]
    for thread in threads:
        thread.start()
    while most < 2:
        pass
    assert most == window.size == 2
    demanded = threading.Thread(
        target=PatientReader(source, window, demand=True).read, args=(EXTENT, lambda data: None), daemon=True
    )
    demanded.start()
    while most < 3:
        pass
    free.set()
    for thread in [*threads, demanded]:
        thread.join(10)
    assert not any(thread.is_alive() for thread in threads)


@pytest.mark.parametrize(("share", "least"), [(0.01, 0.95), (0.05, 0.8)])
def test_single_refusals_leave_most_of_the_window(share: float, least: float) -> None:
    """By rounds of as many requests as are made at a time: the mean of what is asked for, over sixteen."""
    rng, window, requests, rounds = random.Random(7), RequestWindow(16), 0, 2_000
    for _ in range(rounds):
        number, size = window.round, min(window.size, 16)
        requests += size
        for _ in range(size):
            window.refused(number) if rng.random() < share else window.answered()
    assert requests / rounds / 16 > least
