"""Kernels that call kernels by address, so that several run without the interpreter in between.

A kernel that calls another one by name is compiled together with all of the other's code. By
address the other is called as it is, and need not be known at compile time: how an array is passed
does not depend on the type of its items.
"""

from collections.abc import Callable
from typing import Any

from numba import typeof, types

from xylem_store.compiled.decorators import instruction


def address_of(kernel: Callable[..., Any], return_type: Any, *arguments: Any) -> int:
    """Return the address of a kernel's code for arguments like these; compile or load it if needed.

    Raises TypeError if the kernel does not return the numba type `return_type`.
    """
    dispatcher: Any = kernel
    kinds = tuple(map(typeof, arguments))
    dispatcher.compile(kinds)
    overload = dispatcher.overloads[kinds]
    if overload.signature.return_type != return_type:
        raise TypeError(
            f"expected a kernel that returns {return_type}, found {overload.signature.return_type}"
        )
    return int(overload.library.get_pointer_to_function(overload.fndesc.llvm_func_name))


def caller(return_type: Any) -> Any:
    """Return a function for kernels that calls a kernel: call(address, tuple of arguments).

    return_type  the numba type that the called kernel returns

    The arguments must have the types that `address_of` was given, except the types of arrays'
    items. The code stays at its address for as long as the process lives.
    """

    def call(typing_context: Any, address: Any, arguments: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
            kinds = [types.unliteral(kind) for kind in signature.args[1].types]
            convention = context.call_conv
            status, result = convention.call_function(
                builder,
                builder.inttoptr(
                    operands[0], convention.get_function_type(return_type, kinds).as_pointer()
                ),
                return_type,
                kinds,
                [builder.extract_value(operands[1], i) for i in range(len(kinds))],
            )
            with builder.if_then(status.is_error, likely=False):
                convention.return_status_propagate(builder, status)
            return result

        return return_type(address, arguments), generate

    return instruction(call)
