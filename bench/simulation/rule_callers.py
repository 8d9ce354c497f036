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
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(
            f"there is no package {package}; run this from the repository's environment"
        )
    root = Path(spec.submodule_search_locations[0])
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


def named(tree: ast.AST, *, module: str | None = None) -> set[str]:
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
            used.add(functions.get(node.id, f"{module}.{node.id}" if module else node.id))
    return used


def inner_calls() -> dict[str, set[str]]:
    """The rules that each rule calls, through private functions and classes of its module too."""
    all_rules = rules()
    direct: dict[str, set[str]] = {}
    for name, tree in decisions():
        module = module_of(name)
        imports: list[ast.stmt] = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                # Annotations and imports alone are no call, but cost nothing to count: they name no function.
                direct[f"{module}.{node.name}"] = named(
                    ast.Module(body=[*imports, node], type_ignores=[]), module=module
                ) - {f"{module}.{node.name}"}
    return {rule: reached(direct.get(rule, set()), direct) & all_rules.keys() for rule in all_rules}


def reached(start: set[str], edges: dict[str, set[str]]) -> set[str]:
    """All that can be reached from a set along edges, itself included."""
    names, open_names = set(start), list(start)
    while open_names:
        for name in edges.get(open_names.pop(), ()):
            if name not in names:
                names.add(name)
                open_names.append(name)
    return names


@functools.cache
def callers() -> dict[str, list[str]]:
    """The parts that call each rule, by `module.name`; read once a process."""
    all_rules, inner = rules(), inner_calls()
    parts_by_rule: dict[str, list[str]] = {rule: [] for rule in all_rules}
    for part, packages in PARTS.items():
        used: set[str] = set()
        for package in packages:
            for name, text in texts(package):
                # What does not import the decisions names none: most modules need not be parsed.
                if POLICY in text and not _is_of_another(name, package):
                    used |= named(ast.parse(text)) & all_rules.keys()
        for rule in reached(used, inner):
            parts_by_rule[rule].append(part)
    decisions.cache_clear()  # trees of so many modules are tens of MB
    return parts_by_rule


def _is_of_another(module: str, package: str) -> bool:
    """Whether a package below this one is another part's."""
    inner = (child for packages in PARTS.values() for child in packages if child.startswith(f"{package}."))
    return any(module == child or module.startswith(f"{child}.") for child in inner)


def main() -> int:
    print(json.dumps({"bench": "rule_callers", "rules": callers()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
