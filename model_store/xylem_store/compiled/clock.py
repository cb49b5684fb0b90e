"""The time in kernels, as `time.perf_counter_ns` returns it in Python."""

import time
from typing import Any

from llvmlite import ir
from numba import types

from xylem_store.compiled.decorators import instruction

# Seconds and nanoseconds, as the C library of a 64-bit machine writes them.
_TIMESPEC = ir.ArrayType(ir.IntType(64), 2)


def _clock_ns(typing_context: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        function_type = ir.FunctionType(ir.IntType(32), (ir.IntType(32), _TIMESPEC.as_pointer()))
        declaration = builder.module.globals.get("clock_gettime")
        function = (
            ir.Function(builder.module, function_type, "clock_gettime")
            if declaration is None
            else declaration
        )
        with builder.goto_entry_block():
            timespec = builder.alloca(_TIMESPEC)
        builder.call(function, (ir.Constant(ir.IntType(32), time.CLOCK_MONOTONIC), timespec))
        time_fields = builder.load(timespec)
        seconds, nanoseconds = (builder.extract_value(time_fields, i) for i in range(2))
        return builder.add(builder.mul(seconds, ir.Constant(ir.IntType(64), 10**9)), nanoseconds)

    return types.int64(), generate


# clock_ns() -> nanoseconds since an instant in the past. A call takes about 20 nanoseconds.
clock_ns: Any = instruction(_clock_ns)
