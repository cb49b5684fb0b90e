"""numba's compiler without what it does over and over: the code that it makes is the same.

numba types each call anew, compares all its options for each, and lists the variables of each instruction a
dozen times. docs/adr/0018-numbas-inner-parts.md says what each of these saves.
"""

import functools
from typing import Any

import llvmlite.binding.ffi as _ffi
from numba.core import ir, types
from numba.core.targetconfig import ConfigStack, TargetConfig
from numba.core.types.functions import BaseFunction

_stack: Any = ConfigStack
_Config: Any = TargetConfig
_function: Any = BaseFunction
_instruction: Any = ir.Inst


@functools.cache
def _options_of(kind: Any) -> tuple[dict[str, Any], int]:
    """Return the options of a kind of targets, as numba begins with them, and a hash of their names."""
    options = {name: option.default for name, option in kind.options.items()}
    return options, hash(tuple(options))


def _values(self: Any) -> dict[str, Any]:
    """Return all options: numba compares them at each call that it types, and reads each by a property."""
    kind: Any = type(self)
    return {**_options_of(kind)[0], **self._values}


def _hash(self: Any) -> int:
    """Return a hash of the options' names, as numba does, which sorts them each time."""
    kind: Any = type(self)
    return _options_of(kind)[1]


def _list_variables(self: Any, value: Any) -> list[Any]:
    """Return the variables in an instruction's parts, without a call for each part that is none."""
    parts: Any = value.values() if isinstance(value, dict) else value
    found: list[Any] = []
    for part in parts:
        if isinstance(part, ir.Var):
            found.append(part)
        elif isinstance(part, ir.Inst):
            found += part.list_vars()
        elif isinstance(part, list | tuple | dict):
            found += self._rec_list_vars(part)
    return found


def _remember_calls() -> None:
    """Type a call of numba's own function once for the same types and options, such as + of two integers.

    What it finds is filed with the function, by which it is compiled: it is filed again each time, as another
    kernel's options may have led to another one meanwhile.
    """
    resolve, known = _function.get_call_type, dict[Any, Any]()

    def get_call_type(self: Any, context: Any, arguments: Any, keywords: Any) -> Any:
        if keywords or not all(isinstance(kind, types.Type) for kind in arguments):
            return resolve(self, context, arguments, keywords)
        key = self, context, tuple(arguments), _stack.top_or_none()
        try:
            signature, implementation = known[key]
        except KeyError:
            signature = resolve(self, context, arguments, keywords)
            known[key] = signature, self.get_impl_key(signature)
        else:
            self._impl_keys[signature.args] = implementation
        return signature

    _function.get_call_type = get_call_type


def _time_no_calls_of_llvm() -> None:
    """Let no call of LLVM send the two events by which numba would time it: nobody listens."""
    lock: Any = _ffi.lib._lock
    for entered, left in [*lock._cblist]:
        if entered.__module__ == "numba.core.base":
            lock.unregister(entered, left)


def use_shortcuts() -> None:
    """Take all of them, for the rest of the process."""
    _Config.values, _Config.__hash__ = _values, _hash
    _instruction._rec_list_vars = _list_variables
    _remember_calls()
    _time_no_calls_of_llvm()
