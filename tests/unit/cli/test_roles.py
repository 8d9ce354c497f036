"""The reference of roles is the tables that processes use."""

from pathlib import Path

from click.testing import CliRunner

from tdcs.agent.peers import frames
from tdcs.cli import roles
from tdcs.trust import rights
from tdcs.trust.roles import Role

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "roles.md"


def test_the_page_in_the_docs_is_what_the_tables_say() -> None:
    assert PAGE.read_text() == roles.markdown(), "run: make crds"


def test_the_command_writes_the_page(tmp_path: Path) -> None:
    page = tmp_path / "roles.md"
    result = CliRunner().invoke(roles.command, ["--output", str(page)])
    assert (result.exit_code, page.read_text()) == (0, roles.markdown())


def test_the_kinds_of_requests_are_those_of_the_block_service() -> None:
    assert (rights.READ_BLOCKS, rights.FOLLOW_BLOCKS, rights.READ_SOURCE) == (
        frames.READ,
        frames.FEED,
        frames.SOURCE,
    )


def test_what_no_table_names_is_refused_to_every_role() -> None:
    for role in (None, *Role):
        assert not rights.may_ask(role, 4)
        assert not rights.may_call(role, "DELETE /v1/state")
        assert not rights.may_call(role, "GET /v1/anything")
    assert not any(rights.may_ask(None, kind) for kind in rights.BLOCK_REQUESTS)
    assert not any(rights.may_call(None, request) for request in rights.CONTROL_REQUESTS)
