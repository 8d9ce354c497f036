"""Whose keys a shared mount uses."""

import itertools

import pytest

from tdcs.decide.cache.mount_keys import KeysAnswer, gets_keys, may_mount

FLAGS = ("alone", "keys_known", "changed", "held", "held_by_others", "founded")
EVERY = [dict(zip(FLAGS, values, strict=True)) for values in itertools.product((False, True), repeat=6)]


def test_a_source_that_others_wait_for_is_mounted_with_keys_that_it_did_not_refuse() -> None:
    assert {answer for answer in KeysAnswer if may_mount(answer, shared=True)} == {
        KeysAnswer.TAKEN,
        KeysAnswer.SILENT,
    }
    assert all(may_mount(answer, shared=False) for answer in KeysAnswer)


@pytest.mark.parametrize("answer", [KeysAnswer.REFUSED, KeysAnswer.AWAITED])
def test_no_mount_gets_keys_that_the_source_has_not_answered_or_has_refused(answer: KeysAnswer) -> None:
    assert not any(gets_keys(answer, **flags) for flags in EVERY)


def test_accepted_keys_replace_refused_ones_and_never_valid_ones_of_another_namespace() -> None:
    for flags in EVERY:
        accepted = gets_keys(KeysAnswer.TAKEN, **flags)
        if not flags["keys_known"] or not flags["held"]:
            assert accepted, flags
        elif flags["held_by_others"]:
            assert not accepted, flags
        else:
            assert accepted == flags["changed"], flags


def test_unanswered_keys_count_in_one_namespace_or_where_the_mount_was_made_with_them() -> None:
    for flags in EVERY:
        if gets_keys(KeysAnswer.SILENT, **flags):
            assert flags["alone"] or (flags["founded"] and not flags["keys_known"]), flags
            assert gets_keys(KeysAnswer.TAKEN, **flags), flags
