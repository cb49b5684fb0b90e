"""Kernels that call kernels by their addresses, so that several run
without the interpreter between them.

A kernel that calls another one by name is compiled with all of the other's code in it once more. By
its address the other is called as it is, and need not be known: how an array is handed over does
not depend on what is in it.
"""

from collections.abc import Callable
from typing import Any

import numba
from numba import types

from xylem_store.compiled.decorators import instruction

_unliteral: Any = types.unliteral


def address_of(kernel: Callable[..., Any], return_type: Any, *arguments: Any) -> int:
    """Return where the code of a kernel is for arguments like these,
    compiled or loaded if it was not yet.

    Raises TypeError when it does not return this numba type.
    """
    dispatcher: Any = kernel
    kinds = tuple(map(numba.typeof, arguments))
    dispatcher.compile(kinds)
    overload = dispatcher.overloads[kinds]
    if overload.signature.return_type != return_type:
        raise TypeError(
            f"expected a kernel that returns {return_type}, found {overload.signature.return_type}"
        )
    address: int = overload.library.get_pointer_to_function(overload.fndesc.llvm_func_name)
    return address


def caller(return_type: Any) -> Any:
    """Return what calls, in a kernel, one that returns this numba type:
    call(address, tuple of arguments).

    The arguments must be of the types that `address_of` was given, but for the types of arrays'
    items. The code stays where it is for as long as the process lives.
    """

    def call(typing_context: Any, address: Any, arguments: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
            kinds = [_unliteral(kind) for kind in signature.args[1].types]
            convention = context.call_conv
            pointer = convention.get_function_type(return_type, kinds).as_pointer()
            function = builder.inttoptr(operands[0], pointer)
            values = [builder.extract_value(operands[1], i) for i in range(len(kinds))]
            status, result = convention.call_function(builder, function, return_type, kinds, values)
            with builder.if_then(status.is_error, likely=False):
                convention.return_status_propagate(builder, status)
            return result

        return return_type(address, arguments), generate

    return instruction(call)
