"""When authorities and certificates are renewed: processes believe each other at every moment, whatever clocks do."""

from __future__ import annotations

import datetime
import os
from dataclasses import dataclass, field
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tdcs.trust.certificates import (
    BEGINNING,
    KeyPair,
    Subject,
    end_of,
    is_signed_by,
    make_authority,
    matches_subject,
)
from tdcs.trust.identity import Identity
from tdcs.trust.renewal import (
    AUTHORITY_LIFETIME,
    AUTHORITY_RENEWAL,
    LIFETIME,
    RENEWAL,
    SPREAD,
    Authority,
    all_name,
    clock_problem,
    renewed_authority,
    renewed_identity,
)
from tdcs.trust.roles import Role
from tdcs.trust.secrets import authority_data, authority_of, identity_data, identity_of

START = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)
WALKS = int(os.environ.get("TDCS_CLOCK_WALKS", "2"))
"""Random histories of a release; each has some thousand handshakes' worth of signatures."""
DAY, HOUR = datetime.timedelta(days=1), datetime.timedelta(hours=1)
SUBJECTS = (Subject(role=Role.AGENT, hosts=("a.example",)), Subject(role=Role.READER))


@cache
def authority_ending(until: datetime.datetime) -> KeyPair:
    return make_authority(name="test", until=until)


@dataclass
class Process:
    """A process that reads its Secret some time after it was written."""

    subject: Subject
    loaded: Identity | None = None

    def believes(self, other: Process, at: datetime.datetime) -> bool:
        mine, theirs = self.loaded, other.loaded
        if mine is None or theirs is None:
            return False
        return (
            at < end_of(theirs.certificate)
            and is_signed_by(theirs.certificate, mine.authorities)
            and matches_subject(theirs.certificate, other.subject)
        )


@dataclass
class Release:
    """An operator with its Secrets, and processes that mount them."""

    now: datetime.datetime = START
    stored: dict[str, str] | None = None
    secrets: dict[Subject, dict[str, str]] = field(default_factory=dict)
    written: dict[Subject, datetime.datetime] = field(default_factory=dict)
    processes: list[Process] = field(default_factory=lambda: [Process(one) for one in SUBJECTS])

    @property
    def authority(self) -> Authority:
        found = authority_of(self.stored)
        assert found is not None
        return found

    def operate(self, clock: datetime.datetime, *, most: int = 99) -> None:
        """One look of the operator, by this clock, which may end after it has written `most` Secrets."""
        if clock_problem(clock):
            return
        known = authority_of(self.stored)
        there = [one for subject in SUBJECTS if (one := identity_of(self.secrets.get(subject)))]
        spread = known is not None and all_name(there, authority=known)
        authority = renewed_authority(known, now=clock, spread=spread, make=authority_ending)
        self.stored = authority_data(authority)
        for subject in SUBJECTS[:most]:
            known_identity = identity_of(self.secrets.get(subject))
            made = renewed_identity(known_identity, subject=subject, authority=authority, now=clock)
            if made != known_identity:
                self.secrets[subject] = identity_data(made)
                self.written[subject] = self.now

    def load(self, process: Process) -> None:
        """The process has its Secret as it is now."""
        process.loaded = identity_of(self.secrets.get(process.subject))

    def load_all(self) -> None:
        for process in self.processes:
            self.load(process)

    def mistrust(self) -> list[tuple[Role, Role]]:
        return [
            (one.subject.role, other.subject.role)
            for one in self.processes
            for other in self.processes
            if not one.believes(other, self.now)
        ]


def test_a_new_release_has_one_authority_and_certificates_of_90_days() -> None:
    release = Release()
    release.operate(START)
    release.load_all()
    assert release.mistrust() == []
    assert end_of(release.authority.signing.certificate) == START + AUTHORITY_LIFETIME
    loaded = release.processes[0].loaded
    assert loaded is not None
    assert end_of(loaded.certificate) == START + LIFETIME


def test_a_look_at_certificates_that_last_changes_nothing() -> None:
    release = Release()
    release.operate(START)
    before = (release.stored, dict(release.secrets))
    release.operate(START + LIFETIME - RENEWAL - HOUR)
    assert (release.stored, release.secrets) == before


@pytest.mark.parametrize("away", [100 * DAY, 4000 * DAY], ids=["100 days", "11 years"])
def test_a_release_that_was_off_for_long_heals_with_one_look(away: datetime.timedelta) -> None:
    release = Release()
    release.operate(START)
    release.load_all()
    release.now += away
    assert release.mistrust()
    release.operate(release.now)
    release.load_all()
    assert release.mistrust() == []


def test_the_new_authority_signs_only_an_hour_after_all_secrets_name_it() -> None:
    release = Release()
    release.operate(START)
    begun = START + AUTHORITY_LIFETIME - AUTHORITY_RENEWAL + HOUR
    first = release.authority.signing
    release.operate(begun, most=1)  # it ended before it had written the second Secret
    release.operate(begun + 10 * SPREAD, most=0)
    assert release.authority.signing == first
    assert release.authority.announced is None
    release.operate(begun + 11 * SPREAD)
    release.operate(begun + 11 * SPREAD)
    assert release.authority.announced == begun + 11 * SPREAD
    release.operate(begun + 12 * SPREAD - datetime.timedelta(seconds=1))
    assert release.authority.signing == first
    release.operate(begun + 12 * SPREAD)
    assert release.authority.signing != first
    assert first.certificate in release.authority.former
    release.operate(START + AUTHORITY_LIFETIME + HOUR)
    assert release.authority.former == ()


@settings(max_examples=WALKS, deadline=None)
@given(
    steps=st.lists(
        st.tuples(
            st.integers(1, 20 * 24),  # hours until the next look of the operator
            st.integers(0, 2),  # Secrets that it writes before it is killed
            st.lists(st.booleans(), min_size=2, max_size=2),  # which processes load theirs at once
        ),
        min_size=20,
        max_size=40,
    ),
    begin_days=st.integers(0, 800),
)
def test_no_moment_has_a_process_that_another_one_does_not_believe(
    steps: list[tuple[int, int, list[bool]]], begin_days: int
) -> None:
    """Clocks are right, the operator is away for up to 20 days at a time, and is killed in the middle of its work. A
    Secret arrives at once or as late as `SPREAD` after it was written."""
    release = Release()
    release.operate(START)
    release.load_all()
    release.now = START
    release.operate(release.now)
    for day in range(10, begin_days, 10):  # most of what is of interest happens late in an authority's life
        release.now = START + day * DAY
        release.operate(release.now)
        release.load_all()
    for hours, most, at_once in steps:
        release.now += hours * HOUR
        late = {
            process.subject.role
            for process in release.processes
            if release.now - release.written.get(process.subject, START) >= SPREAD
        }
        for process in release.processes:
            if process.subject.role in late:
                release.load(process)
        assert release.mistrust() == []
        release.operate(release.now, most=most)
        release.operate(release.now, most=2)  # it is started again
        for process, loads in zip(release.processes, at_once, strict=True):
            if loads:
                release.load(process)
        assert release.mistrust() == []


@settings(max_examples=10 * WALKS, deadline=None)
@given(
    clocks=st.lists(st.integers(-3000, 8000), min_size=1, max_size=12),
    later=st.integers(0, 3000),
)
def test_clocks_that_jump_about_leave_nothing_behind(clocks: list[int], later: int) -> None:
    release = Release()
    release.operate(START)
    for days in clocks:  # the operator's clock is wrong, the others' are right
        release.operate(START + days * DAY)
    release.now = START + later * DAY
    release.operate(release.now)
    release.operate(release.now)
    release.load_all()
    assert release.mistrust() == []


def test_an_authority_that_a_wrong_clock_took_for_ended_is_believed_until_it_ends() -> None:
    release = Release()
    release.operate(START)
    release.load_all()
    late, quick = release.processes
    first = release.authority.signing
    for clock in (START + AUTHORITY_LIFETIME + 100 * DAY, START + HOUR):
        release.operate(clock)
        release.load(quick)
        assert release.authority.signing != first
        assert quick.believes(late, START)
    release.operate(START + AUTHORITY_LIFETIME - DAY)
    assert first.certificate in release.authority.former
    release.operate(START + AUTHORITY_LIFETIME + HOUR)
    assert first.certificate not in release.authority.former


def test_an_authority_that_has_ended_is_believed_until_all_secrets_have_arrived() -> None:
    release = Release()
    release.operate(START)
    first, ended = release.authority.signing, START + AUTHORITY_LIFETIME + 100 * DAY
    release.operate(ended)
    release.operate(ended + SPREAD - datetime.timedelta(seconds=1))
    assert release.authority.former == (first.certificate,)
    release.operate(ended + SPREAD)
    assert not release.authority.former


def test_a_clock_before_all_certificates_makes_none() -> None:
    assert "set its node's clock" in clock_problem(BEGINNING - DAY)
    release = Release()
    release.operate(BEGINNING - DAY)
    assert release.stored is None


@pytest.mark.parametrize(
    "changed",
    ["names", "role", "key of another", "authority of another", "no certificate"],
)
def test_a_certificate_that_does_not_fit_is_made_again(changed: str) -> None:
    subject = Subject(role=Role.AGENT, hosts=("a.example",))
    authority = renewed_authority(None, now=START, spread=False, make=authority_ending)
    known = renewed_identity(None, subject=subject, authority=authority, now=START)
    other = renewed_identity(None, subject=subject, authority=authority, now=START)
    if changed == "names":
        subject = Subject(role=Role.AGENT, hosts=("b.example",))
    elif changed == "role":
        subject = Subject(role=Role.WORKER, hosts=("a.example",))
    elif changed == "key of another":
        known = Identity(known.certificate, other.key, known.authorities)
    elif changed == "authority of another":
        authority = Authority(signing=make_authority(name="another", until=START + AUTHORITY_LIFETIME))
    else:
        known = Identity(b"nonsense", known.key, known.authorities)
    made = renewed_identity(known, subject=subject, authority=authority, now=START)
    assert made.certificate != known.certificate
    assert matches_subject(made.certificate, subject)
    assert is_signed_by(made.certificate, authority.signing.certificate)


@settings(max_examples=5 * WALKS, deadline=None)
@given(
    key=st.sampled_from(
        [
            "tls.crt",
            "tls.key",
            "ca.crt",
            "following.crt",
            "following.key",
            "former.crt",
            "announced",
            "replaced",
        ]
    ),
    value=st.one_of(st.text(max_size=30), st.none(), st.sampled_from(["AAAA", "bm9uc2Vuc2U="])),
)
def test_a_secret_with_nonsense_in_it_is_read_without_a_crash(key: str, value: str | None) -> None:
    authority = Authority(
        signing=authority_ending(START + AUTHORITY_LIFETIME),
        following=authority_ending(START + 2 * AUTHORITY_LIFETIME),
        announced=START,
        former=(authority_ending(START + HOUR).certificate,),
    )
    data: dict[str, str | None] = {**authority_data(authority), key: value}
    found = authority_of(data)
    assert (found is None) == (key in {"tls.crt", "tls.key"})
    if found is not None:
        renewed_authority(found, now=START, spread=True, make=authority_ending)


def test_an_authority_is_the_same_when_it_is_read_from_its_secret() -> None:
    authority = Authority(
        signing=authority_ending(START + AUTHORITY_LIFETIME),
        following=authority_ending(START + 2 * AUTHORITY_LIFETIME),
        announced=START,
        former=tuple(authority_ending(START + days * DAY).certificate for days in (1, 2)),
        replaced=START - DAY,
    )
    assert authority_of(authority_data(authority)) == authority
