"""numba's compiler without typing the same call over and over: the code that it makes is the same.

docs/adr/0018-numbas-inner-parts.md says what this saves.
"""

from typing import Any

from numba.core import types
from numba.core.targetconfig import ConfigStack
from numba.core.types.functions import BaseFunction

_stack: Any = ConfigStack
_function: Any = BaseFunction


def remember_calls() -> None:
    """Type a call of numba's own function once for the same types and options, such as + of two integers.

    For the rest of the process. What it finds is filed with the function, by which it is compiled: it is
    filed again each time, as another kernel's options may have led to another one meanwhile.
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
