"""The runtime that asks for no more than the machine gives."""

from tdcs_local import limited_runc

# the bounding set of a machine that withholds CAP_SYS_RESOURCE (24), out of 41 capabilities
STATUS = "Name:\tx\nCapBnd:\t000001fffeffffff\n"


def test_a_withheld_capability_is_found() -> None:
    assert limited_runc.missing(STATUS) == {"CAP_SYS_RESOURCE"}
    assert limited_runc.missing("CapBnd:\t000001ffffffffff\n") == set()


def test_it_is_struck_from_every_set_of_a_container_and_nothing_else_changes() -> None:
    sets = {"bounding": ["CAP_KILL", "CAP_SYS_RESOURCE"], "effective": ["CAP_SYS_RESOURCE"]}
    specification: dict[str, object] = {
        "root": {"path": "/"},
        "process": {"args": ["sh"], "capabilities": sets},
    }
    assert limited_runc.without(specification, {"CAP_SYS_RESOURCE"}) == {
        "root": {"path": "/"},
        "process": {"args": ["sh"], "capabilities": {"bounding": ["CAP_KILL"], "effective": []}},
    }
    assert limited_runc.without(specification, set()) == specification


def test_the_process_of_an_exec_has_its_sets_at_the_top() -> None:
    process: dict[str, object] = {"capabilities": {"bounding": ["CAP_SYS_RESOURCE"]}}
    assert limited_runc.without(process, {"CAP_SYS_RESOURCE"}) == {"capabilities": {"bounding": []}}


def test_the_specification_is_found_in_each_way_of_calling() -> None:
    find = limited_runc.specification_file
    assert find(["--root", "/r", "create", "--bundle", "/b", "id"]) == "/b/config.json"
    assert find(["create", "--bundle=/b", "id"]) == "/b/config.json"
    assert find(["create", "-b", "/b", "id"]) == "/b/config.json"
    assert find(["exec", "--process", "/p.json", "id"]) == "/p.json"
    assert find(["exec", "-p", "/p.json", "id"]) == "/p.json"
    assert find(["state", "id"]) == ""
