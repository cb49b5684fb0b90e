"""Where the time goes in which all kernels are compiled: `python -m benchmarks.compiling [--rows N]`.

In one process, by what `service.warm` does. Processor seconds, by kernel or helper: *typing* (numba's passes
up to types), *lowering* (to LLVM's code, in Python), *LLVM* (parsing, optimising, emitting), and *the rest*
(the cache's files, starting up). What numba compiles of its own, such as sorting, stands by its own name.
"""

from __future__ import annotations

import argparse
import logging
import os
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

_PHASES = ("typing", "lowering", "LLVM", "the rest")


class _Clock:
    """Counts processor time for the innermost of what is under way: what began inside counts for itself."""

    def __init__(self) -> None:
        self.seconds: Counter[tuple[str, str]] = Counter()
        self.n_compiled: Counter[str] = Counter()
        self._under_way: list[tuple[str, str]] = [("", "the rest")]
        self._last = time.process_time()

    def enter(self, kernel: str, phase: str) -> None:
        self._count()
        self._under_way.append((kernel or self._under_way[-1][0], phase))

    def leave(self) -> None:
        self._count()
        self._under_way.pop()

    def _count(self) -> None:
        now = time.process_time()
        self.seconds[self._under_way[-1]] += now - self._last
        self._last = now


def _listen(clock: _Clock) -> None:
    """Have numba's events tell the clock what it does."""
    from numba.core import event

    class Listener(event.Listener):  # type: ignore[misc]
        def on_start(self, e: Any) -> None:
            if e.kind == "numba:compile":
                function = e.data["dispatcher"].py_func
                name = f"{function.__module__}.{function.__name__}"
                clock.n_compiled[name] += 1
                clock.enter(name, "the rest")
            elif e.kind == "numba:run_pass":
                is_lowering = e.data["name"].startswith("native_lowering")
                clock.enter("", "lowering" if is_lowering else "typing")
            else:
                clock.enter("", "LLVM")

        def on_end(self, e: Any) -> None:
            clock.leave()

    for kind in ("numba:compile", "numba:run_pass", "numba:llvm_lock"):
        event.register(kind, Listener())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=40, help="how many kernels to print")
    n_rows = parser.parse_args().rows
    logging.disable(logging.WARNING)
    clock = _Clock()
    with tempfile.TemporaryDirectory() as kernels, tempfile.TemporaryDirectory() as data:
        os.environ["XYLEM_KERNEL_CACHE"] = kernels
        _listen(clock)
        from service.warm.kernels import jobs, warm

        for job in jobs(Path(data)):
            warm(job)
        n_kept = sum(1 for _ in Path(kernels).rglob("*.nbc"))
    by_kernel: Counter[str] = Counter()
    by_phase: Counter[str] = Counter()
    for (kernel, phase), seconds in clock.seconds.items():
        by_kernel[kernel] += seconds
        by_phase[phase] += seconds
    print(f"{n_kept} kernels and helpers, {sum(by_phase.values()):.1f} s")
    print(f"{'':60} times    all  {'  '.join(_PHASES)}")
    for kernel, seconds in [("all", sum(by_phase.values())), *by_kernel.most_common(n_rows)]:
        parts = [by_phase[phase] if kernel == "all" else clock.seconds[kernel, phase] for phase in _PHASES]
        cells = "  ".join(f"{part:{len(phase)}.2f}" for part, phase in zip(parts, _PHASES, strict=True))
        name = kernel or "what is done with the kernels"
        print(f"{name:60} {clock.n_compiled[kernel]:5} {seconds:6.2f}  {cells}")


if __name__ == "__main__":
    main()
