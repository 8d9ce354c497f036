"""The plan of a view, as properties: whatever is there, one round of steps brings what shall be there."""

from dataclasses import dataclass

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tdcs.node.csi.views.view_plan import FileKind, Form, PlannedBlocks, is_native, plan

LINKED = (FileKind.BLOCK, FileKind.PARTS)
INODES = st.integers(0, 4)


@dataclass(frozen=True)
class Step:
    """One of the steps of a plan."""

    index: int
    form: Form
    fresh: bool


@dataclass(frozen=True)
class World:
    """A view and the blocks of its node; 0 stands for no block."""

    kinds: list[FileKind]
    forms: list[Form]
    linked: list[int]
    local: list[int]
    wrong: frozenset[int] = frozenset()

    def after(self, *, release: bool) -> "World":
        forms, linked = list(self.forms), list(self.linked)
        for step in self.steps(release=release):
            forms[step.index] = step.form
            if step.form is Form.LINK:
                linked[step.index] = self.local[step.index]
        return World(self.kinds, forms, linked, self.local, self.wrong)

    def steps(self, *, release: bool) -> list[Step]:
        steps = plan(
            kinds=np.array(self.kinds, dtype=np.uint8),
            forms=np.array(self.forms, dtype=np.uint8),
            linked=np.array(self.linked, dtype=np.uint64),
            blocks=PlannedBlocks(
                np.array(self.local, dtype=np.uint64), np.array(sorted(self.wrong), dtype=np.int64)
            ),
            release=release,
        )
        return [
            Step(int(file), Form(int(form)), bool(fresh))
            for file, form, fresh in zip(steps.files, steps.forms, steps.fresh, strict=True)
        ]


@st.composite
def worlds(draw: st.DrawFn) -> World:
    files = draw(
        st.lists(
            st.tuples(
                st.sampled_from(FileKind), st.sampled_from(Form), st.integers(1, 4), INODES, st.booleans()
            ),
            max_size=12,
        )
    )
    return World(
        kinds=[kind for kind, *_ in files],
        forms=[form for _, form, *_ in files],
        linked=[inode for _, _, inode, *_ in files],
        local=[inode if kind in LINKED and not wrong else 0 for kind, _, _, inode, wrong in files],
        wrong=frozenset(number for number, (*_, wrong) in enumerate(files) if wrong),
    )


@given(worlds(), st.booleans())
def test_one_round_is_enough(world: World, release: bool) -> None:
    assert world.after(release=release).steps(release=release) == []


@given(worlds(), st.booleans())
def test_every_file_is_there_afterwards_and_a_block_on_the_node_is_linked(
    world: World, release: bool
) -> None:
    after = world.after(release=release)
    for kind, form, linked, local in zip(after.kinds, after.forms, after.linked, after.local, strict=True):
        assert form is not Form.MISSING
        assert (kind == FileKind.EMPTY) == (form is Form.EMPTY)
        if local:
            assert (form, linked) == (Form.LINK, local)
        if kind == FileKind.CLIENT:
            assert form is Form.REMOTE


@given(worlds())
def test_a_released_view_keeps_no_block_that_the_worker_gave_up(world: World) -> None:
    after = world.after(release=True)
    assert all(local for form, local in zip(after.forms, after.local, strict=True) if form is Form.LINK)


@given(worlds())
def test_a_stable_view_loses_no_link(world: World) -> None:
    after = world.after(release=False)
    for file, (kind, before, form) in enumerate(zip(world.kinds, world.forms, after.forms, strict=True)):
        if before is Form.LINK and kind in LINKED:
            assert (form is Form.LINK) == (file not in world.wrong)


@given(worlds(), st.booleans())
def test_no_view_has_a_link_to_a_refused_block(world: World, release: bool) -> None:
    after = world.after(release=release)
    assert not any(after.forms[file] is Form.LINK for file in world.wrong)


@given(worlds(), st.booleans())
def test_nothing_is_touched_that_is_right_already(world: World, release: bool) -> None:
    touched = {step.index for step in world.steps(release=release)}
    for index in set(range(len(world.kinds))) - touched:
        assert world.forms[index] is not Form.MISSING
    for step in world.steps(release=release):
        assert step.fresh == (world.forms[step.index] is Form.MISSING)


def test_a_view_is_native_when_no_file_leads_to_the_client() -> None:
    for forms, native in (
        ([Form.LINK, Form.EMPTY], True),
        ([], True),
        ([Form.LINK, Form.REMOTE], False),
        ([Form.MISSING], False),
        ([Form.OTHER], False),
    ):
        assert is_native(forms=np.array(forms, dtype=np.uint8)) is native
