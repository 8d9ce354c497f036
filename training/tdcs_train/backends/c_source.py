"""What every back end that writes C source needs: the file around its functions, and the module of it.

A back end writes a function `<symbol>_` that takes a pointer for each input and each output of the region and returns
0, or something else when it has no memory. This module adds `<symbol>_wrapper`, which takes tensors, and the symbol by
which TVM calls the region.
"""

from collections.abc import Sequence
from typing import Any

from tdcs_train.backends.graph import Region


def c_file(region: Region, functions: Sequence[str], *, includes: Sequence[str] = ()) -> str:
    """The C source of a region, which a C++ compiler takes too; pure.

    Args:
        region: what the functions compute.
        functions: their source; the last one is `<symbol>_`.
        includes: headers beside those of the standard library.
    """
    headers = ("dlpack/dlpack.h", "stdint.h", "stdlib.h", "tvm/ffi/c_api.h", *includes)
    return "\n".join(
        [
            *(f"#include <{header}>" for header in headers),
            '\n#ifdef __cplusplus\nextern "C" {\n#endif\n',
            *functions,
            _wrapper(region),
            _symbol(region),
            "\n#ifdef __cplusplus\n}\n#endif\n",
        ]
    )


def c_module(region: Region, text: str) -> Any:
    """The runtime module of a region's C source; it is compiled when the artifact's library is built."""
    from tvm import runtime

    return runtime._ffi_api.CSourceModuleCreate(text, "c", [region.symbol], [])


def _wrapper(region: Region) -> str:
    count = len(region.inputs)
    places = range(count + len(region.outputs))
    lines = [f"static int {region.symbol}_wrapper(DLTensor* const* tensors) {{"]
    lines += [
        f"  float* t{i} = (float*)((char*)tensors[{i}]->data + tensors[{i}]->byte_offset);" for i in places
    ]
    arguments = ", ".join(f"t{place}" for place in places)
    return "\n".join([*lines, f"  return {region.symbol}_({arguments});", "}", ""])


def _symbol(region: Region) -> str:
    count = len(region.inputs) + len(region.outputs)
    return f"""\
int __tvm_ffi_{region.symbol}(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {{
  DLTensor* tensors[{count}];
  (void)self;
  (void)result;
  if (n != {count}) {{
    TVMFFIErrorSetRaisedFromCStr("TypeError", "{region.symbol} takes {count} tensors");
    return -1;
  }}
  for (int32_t i = 0; i < n; ++i) {{
    if (args[i].type_index == kTVMFFIDLTensorPtr) {{
      tensors[i] = (DLTensor*)args[i].v_ptr;
    }} else if (args[i].type_index == kTVMFFITensor) {{
      tensors[i] = (DLTensor*)((char*)args[i].v_obj + sizeof(TVMFFIObject));
    }} else {{
      TVMFFIErrorSetRaisedFromCStr("TypeError", "{region.symbol} takes only tensors");
      return -1;
    }}
  }}
  if ({region.symbol}_wrapper(tensors) != 0) {{
    TVMFFIErrorSetRaisedFromCStr("MemoryError", "{region.symbol} has no memory for its buffers");
    return -1;
  }}
  return 0;
}}"""
