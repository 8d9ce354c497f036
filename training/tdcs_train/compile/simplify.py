"""Prepares an imported model: folds what is constant, and takes the weights out of the module."""

from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax

from tdcs_train.compile.constant_folding import fold


def simplify(module: Any) -> Any:
    """Fold batch normalisation into convolutions and constants into each other; drop what is not used."""
    passes = [
        relax.transform.ConvertToDataflow(min_size=1),
        relax.transform.FoldBatchnormToConv2D(),
    ]
    module = fold(tvm.transform.Sequential(passes)(module))
    passes = [
        relax.transform.FoldConstant(),
        relax.transform.CanonicalizeBindings(),
        relax.transform.DeadCodeElimination(),
    ]
    return tvm.transform.Sequential(passes)(module)


def lift_weights(module: Any) -> tuple[Any, dict[str, NDArray[Any]]]:
    """Turn the constants of `main` into parameters after the inputs. Scalars and integers stay: operators may need them
    to know their shapes.

    Returns:
        The module and the weights by name, in the order of the new parameters.
    """
    weights: dict[str, NDArray[Any]] = {}
    parameters: list[Any] = []
    variables: dict[Any, Any] = {}

    @relax.expr_functor.mutator
    class Lifter(relax.PyExprMutator):  # type: ignore[misc]
        def visit_generic_const_(self, op: Any) -> Any:
            if op in variables:
                return variables[op]
            value = op.value.numpy()
            if value.ndim == 0 or value.dtype.kind != "f":
                return op
            name = f"w{len(weights)}"
            weights[name] = value
            variables[op] = relax.Var(name, op.ty)
            parameters.append(variables[op])
            return variables[op]

    main = module["main"]
    body = Lifter(module).visit_expr(main.body)
    if parameters:
        lifted = relax.Function([*main.params, *parameters], body, main.ret_ty, main.is_pure, main.attrs)
        module = tvm.IRModule({**module.functions, module.get_global_var("main"): lifted}, module.attrs)
        module = relax.transform.Normalize()(module)
    return module, {name: np.ascontiguousarray(value) for name, value in weights.items()}
