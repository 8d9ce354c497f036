"""Gives parts of a Relax module to back ends: match, merge into convex regions, number them, make their code."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import relax

from tdcs_train.backends.backend import Backend, GeneratedCode, Row
from tdcs_train.backends.graph import Match, Region
from tdcs_train.compile.relax_reader import operator_name, read_match, read_region
from tdcs_train.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A match that a row's check did not take, and why: the host computes it."""

    backend: str
    row: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Partition:
    """A module of which parts were given to back ends.

    Attributes:
        module: the Relax module; regions are calls of their symbols, and the generated code is attached.
        regions: in execution order.
        arguments: for each region the place of each argument among the weights, None for what is no weight.
        codes: the generated code of each region.
        refusals: what checks refused, each once.
        host: the operators that the host computes, in execution order.
    """

    module: Any
    regions: tuple[Region, ...]
    arguments: tuple[tuple[int | None, ...], ...]
    codes: tuple[GeneratedCode, ...]
    refusals: tuple[Refusal, ...]
    host: tuple[str, ...]

    def weight_names(self, names: Sequence[str]) -> Iterator[tuple[str, ...]]:
        """For each region the names of the weights that it takes, in order."""
        for places in self.arguments:
            yield tuple(names[place] for place in places if place is not None)


def partition(module: Any, *, backends: Sequence[Backend], weights: int) -> Partition:
    """Partition the function `main` of a module between back ends, the first one having the first choice.

    Args:
        module: a Relax module; its last `weights` parameters are the weights.
        backends: in order of preference.

    Raises:
        InputError: a back end fails, or gives something else than it must.
    """
    tables = {backend.name: _table(backend) for backend in backends}
    refusals: list[Refusal] = []
    module = merge_regions(module, tables, refusals)
    module, places = _number_regions(module, weights)
    regions = []
    for symbol, (function, bound) in places.items():
        attributes = {row.name: row.attributes for row in tables[str(function.attrs["Codegen"])]}
        weighted = [place is not None for place in bound]
        regions.append(read_region(function, symbol=symbol, weights=weighted, attributes=attributes))
    host = tuple(_host_operators(module["main"]))
    by_name = {backend.name: backend for backend in backends}
    codes = tuple(_code(by_name[region.backend], region) for region in regions)
    module = _replace_regions(module, codes, dict(zip(places, codes, strict=True)))
    return Partition(
        module=module,
        regions=tuple(regions),
        arguments=tuple(bound for _, bound in places.values()),
        codes=codes,
        refusals=tuple(dict.fromkeys(refusals)),
        host=host,
    )


def merge_regions(module: Any, tables: Mapping[str, Sequence[Row]], refusals: list[Refusal]) -> Any:
    """Match the tables of back ends, given by name, and merge neighbouring matches of one back end into regions.

    What checks refuse is appended to `refusals`.

    Raises:
        InputError: a check fails, or gives something else than None or a sentence.
    """
    faults: list[InputError] = []
    patterns: list[tuple[str, Any, dict[str, Any], Any]] = [
        (f"{name}.{row.name}", row.pattern, {}, _check(name, row, refusals, faults))
        for name, rows in tables.items()
        for row in rows
    ]
    if not patterns:
        return module
    passes = [
        relax.transform.FuseOpsByPattern(patterns, bind_constants=False),
        relax.transform.MergeCompositeFunctions(),
    ]
    merged = tvm.transform.Sequential(passes)(module)
    if faults:
        raise faults[0]
    return merged


def _table(backend: Backend) -> tuple[Row, ...]:
    try:
        rows: tuple[object, ...] = tuple(backend.table())
    except Exception as error:  # whatever the package's code raises
        raise _failed(backend.name, "table", error) from error
    if odd := [type(row).__name__ for row in rows if not isinstance(row, Row)]:
        raise InputError(f"the table of the back end {backend.name} has a {odd[0]}; it must have only Rows")
    return tuple(row for row in rows if isinstance(row, Row))


def _code(backend: Backend, region: Region) -> GeneratedCode:
    try:
        code: object = backend.codegen(region)
    except InputError:  # has its own remedy, as where the compiler fails
        raise
    except Exception as error:  # whatever the package's code raises
        raise _failed(backend.name, "code generator", error) from error
    if not isinstance(code, GeneratedCode):
        raise InputError(
            f"the code generator of the back end {backend.name} gave a {type(code).__name__}; "
            "it must give a GeneratedCode"
        )
    return code


def _failed(backend: str, part: str, error: Exception) -> InputError:
    reason = (str(error).strip().splitlines() or ["no reason given"])[0][:400]
    return InputError(
        f"the back end {backend} fails in its {part}: {type(error).__name__}: {reason}; repair its package"
    )


def _judged(backend: str, row: Row, match: Match) -> str | None:
    try:
        reason: object = row.check(match)
    except Exception as error:  # whatever the package's code raises
        raise _failed(backend, f"check of row {row.name}", error) from error
    if reason is None or isinstance(reason, str):
        return reason
    raise InputError(
        f"the check of the row {row.name} of the back end {backend} gave {reason!r:.80}; "
        "it must give None or a sentence"
    )


def _check(backend: str, row: Row, refusals: list[Refusal], faults: list[InputError]) -> Any:
    def judge(context: Any) -> bool:
        match = read_match(context)
        try:
            reason = (
                "a value inside it is read elsewhere too" if match is None else _judged(backend, row, match)
            )
        except InputError as error:
            faults.append(error)  # what is raised here would cross TVM and become another class
            return False
        if reason is not None:
            refusals.append(Refusal(backend=backend, row=row.name, reason=reason))
        return reason is None

    return judge


def _region_calls(function: Any, module: Any) -> Iterator[tuple[Any, Any]]:
    for block in function.body.blocks:
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.GlobalVar):
                callee = module[value.op]
                if callee.attrs and "Codegen" in callee.attrs:
                    yield value, callee


def _number_regions(module: Any, weights: int) -> tuple[Any, dict[str, tuple[Any, tuple[int | None, ...]]]]:
    """Give each call of a region a function of its own, named subgraph_0, subgraph_1, ... in execution order.

    TVM shares one function between regions that look alike, but their weights differ.
    """
    main = module["main"]
    bound = {param: place for place, param in enumerate(main.params[len(main.params) - weights :])}
    calls = list(_region_calls(main, module))
    places: dict[str, tuple[Any, tuple[int | None, ...]]] = {}
    builder = relax.BlockBuilder(module)
    targets: dict[Any, Any] = {}
    for number, (call, callee) in enumerate(calls):
        symbol = f"subgraph_{number}"
        places[symbol] = (callee, tuple(bound.get(argument) for argument in call.args))
        targets[call] = builder.add_func(callee.with_attr("global_symbol", symbol), symbol)
    if not calls:
        return module, places

    @relax.expr_functor.mutator
    class Renamer(relax.PyExprMutator):  # type: ignore[misc]
        def visit_call_(self, op: Any) -> Any:
            if op in targets:
                return relax.Call(targets[op], op.args, op.attrs, op.ty_args)
            return super().visit_call_(op)

    updated = builder.get()
    updated.update_func(updated.get_global_var("main"), Renamer(updated).visit_expr(main))
    shared = {callee for _, callee in calls}
    functions = {name: function for name, function in updated.functions.items() if function not in shared}
    return tvm.IRModule(functions, updated.attrs), places


def _host_operators(main: Any) -> Iterator[str]:
    for block in main.body.blocks:
        for binding in block.bindings:
            if name := operator_name(binding.value):
                yield name


def _replace_regions(module: Any, codes: Sequence[GeneratedCode], by_symbol: dict[str, GeneratedCode]) -> Any:
    """Run TVM's RunCodegen: regions become calls by symbol, and the generated modules are attached."""
    if not codes:
        return module
    codegens = {
        str(function.attrs["Codegen"])
        for _, function in module.functions.items()
        if "Codegen" in (function.attrs or {})
    }

    def give(functions: Any, _options: Any, _constants: Any) -> list[Any]:
        return [by_symbol[str(function.attrs["global_symbol"])].module for function in functions]

    for name in codegens:
        tvm_ffi.register_global_func(f"relax.ext.{name}", give, override=True)
    try:
        return relax.transform.RunCodegen({}, ["main"])(module)
    finally:
        for name in codegens:  # TVM outlives Python: what it kept of it would end the process with a fault
            tvm_ffi.registry.remove_global_func(f"relax.ext.{name}")
