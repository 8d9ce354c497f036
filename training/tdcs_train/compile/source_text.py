"""The code of a model as TVM and the back ends wrote it, before it was compiled: one text for people."""

from typing import Any

from tdcs_train.compile.partition import Partition

LANGUAGES = {"llvm": "LLVM IR"}
"""Of the kinds of TVM's runtime modules that have code of TVM itself."""


def source_text(built: Any, partition: Partition) -> str:
    """The order of calls, what each back end made of its regions, and TVM's own code.

    Args:
        built: what `relax.build` gave.
    """
    sections = [("order of calls", built.as_text())]
    for region, code in zip(partition.regions, partition.codes, strict=True):
        sections.append((f"{region.symbol}: of the back end {region.backend}", code.text))
    sections += [
        (f"TVM's own code, {LANGUAGES[module.kind]}", module.inspect_source(""))
        for module in _modules(built.mod)
        if module.kind in LANGUAGES
    ]
    return "\n".join(f"==== {title} ====\n{text.strip()}\n" for title, text in sections)


def _modules(module: Any) -> list[Any]:
    """A module and all that it imports."""
    return [module, *(inner for imported in module.imports for inner in _modules(imported))]
