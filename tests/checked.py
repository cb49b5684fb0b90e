"""Run pytest with all indices of kernels checked: python -m tests.checked [arguments of pytest].

With NUMBA_BOUNDSCHECK=1 an index beyond an array raises IndexError, in vector loads too. Here a
negative index raises it as well: counted from the end, as Python does, it would hide an index that
was computed wrongly.
"""

import os
import sys
from typing import Any

import pytest
from numba.core import types
from numba.np import arrayobj

_fix_index: Any = arrayobj.fix_integer_index


def _refuse_negative(context: Any, builder: Any, index_type: Any, index: Any, size: Any) -> Any:
    """Do not add the size to a negative index that is no constant, so that the check refuses it."""
    if index_type.signed and not isinstance(index_type, types.IntegerLiteral):
        return context.cast(builder, index, index_type, types.intp)
    return _fix_index(context, builder, index_type, index, size)


if __name__ == "__main__":
    if os.environ.get("NUMBA_BOUNDSCHECK") != "1" or "XYLEM_KERNEL_CACHE" not in os.environ:
        sys.exit(
            "expected NUMBA_BOUNDSCHECK=1, and XYLEM_KERNEL_CACHE: such kernels are for "
            "nothing else"
        )
    arrayobj.fix_integer_index = _refuse_negative
    sys.exit(pytest.main(sys.argv[1:]))
