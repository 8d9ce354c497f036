"""Which part of TDCS calls which rule of `tdcs.decide`, read from the sources. Prints one JSON line.

A part calls a rule when one of its modules names it, or calls a rule that does. Nothing is run.
"""

import ast
import functools
import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path

POLICY = "tdcs.decide"
#: The parts of the product by the packages that make them up.
PARTS = {
    "operator": (
        *("tdcs.control", "tdcs.listing", "tdcs.engine", "tdcs.alluxio"),
        *("tdcs.node.csi", "tdcs.kube", "tdcs.cli"),
    ),
    "agent": ("tdcs.node.agent",),
    "extender": ("tdcs_scheduler",),
    "simulator": ("tdcs_labs",),
}


def texts(package: str) -> Iterator[tuple[str, str]]:
    """The modules of a package and what is in below it, as they are written."""
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError(
            f"there is no package {package}; run this from the repository's environment"
        )
    root = Path(found.submodule_search_locations[0])
    for path in sorted(root.rglob("*.py")):
        inner = ".".join(path.relative_to(root).with_suffix("").parts)
        name = package if inner == "__init__" else f"{package}.{inner}"
        yield name, path.read_text(encoding="utf-8")


@functools.cache
def decisions() -> tuple[tuple[str, ast.Module], ...]:
    """The modules of the decisions, parsed."""
    return tuple((name, ast.parse(text)) for name, text in texts(POLICY))


def rules() -> dict[str, ast.FunctionDef]:
    """The public functions of the decisions by `module.name`; each module's name is given once."""
    return {
        f"{module_of(name)}.{node.name}": node
        for name, tree in decisions()
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    }


@functools.cache
def folders() -> frozenset[str]:
    """The packages of the decisions."""
    return frozenset(name.rpartition(".")[0] for name, _ in decisions() if name != POLICY)


def module_of(name: str) -> str:
    """A module's own name, without its folders."""
    return name.rpartition(".")[2]


def named(tree: ast.AST, *, own: str | None = None) -> set[str]:
    """The names `module.name` out of the decisions that a module uses; `own` is its own name if it is one of them."""
    modules: dict[str, str] = {}
    functions: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if node.module in folders():
                    modules[alias.asname or alias.name] = alias.name
                elif node.module.startswith(POLICY + "."):
                    functions[alias.asname or alias.name] = f"{module_of(node.module)}.{alias.name}"
    used = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            used.add(f"{modules[node.value.id]}.{node.attr}")
        elif isinstance(node, ast.Name):
            used.add(functions.get(node.id, f"{own}.{node.id}" if own else node.id))
    return used


def inner_calls() -> dict[str, set[str]]:
    """The rules that each rule calls, through private functions and classes of its module too."""
    known = rules()
    direct: dict[str, set[str]] = {}
    for name, tree in decisions():
        module = module_of(name)
        imports: list[ast.stmt] = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                # Annotations and imports alone are no call, but cost nothing to count: they name no function.
                direct[f"{module}.{node.name}"] = named(
                    ast.Module(body=[*imports, node], type_ignores=[]), own=module
                ) - {f"{module}.{node.name}"}
    return {rule: reached(direct.get(rule, set()), direct) & known.keys() for rule in known}


def reached(start: set[str], edges: dict[str, set[str]]) -> set[str]:
    """All that can be reached from a set along edges, itself included."""
    found, open_names = set(start), list(start)
    while open_names:
        for name in edges.get(open_names.pop(), ()):
            if name not in found:
                found.add(name)
                open_names.append(name)
    return found


@functools.cache
def callers() -> dict[str, list[str]]:
    """The parts that call each rule, by `module.name`; read once a process."""
    known, inner = rules(), inner_calls()
    found: dict[str, list[str]] = {rule: [] for rule in known}
    for part, packages in PARTS.items():
        used: set[str] = set()
        for package in packages:
            for name, text in texts(package):
                # What does not import the decisions names none: most modules need not be parsed.
                if POLICY in text and not _is_of_another(name, package):
                    used |= named(ast.parse(text)) & known.keys()
        for rule in reached(used, inner):
            found[rule].append(part)
    decisions.cache_clear()  # trees of so many modules are tens of MB
    return found


def _is_of_another(module: str, package: str) -> bool:
    """Whether a package below this one is another part's."""
    inner = (one for packages in PARTS.values() for one in packages if one.startswith(f"{package}."))
    return any(module == one or module.startswith(f"{one}.") for one in inner)


def main() -> int:
    print(json.dumps({"bench": "rule_callers", "rules": callers()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
