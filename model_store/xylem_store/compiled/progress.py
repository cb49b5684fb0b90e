"""How many kernels this process has by now, and how long it has
compiled: for those who wait for them.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Progress:
    """Counts the kernels that Python called: those that they call in turn are parts of them.

    Written by whoever holds numba's lock of the compiler, read by anybody.

    n_ready      compiled or loaded by now
    n_compiled   compiled by now
    seconds      in which they were
    """

    def __init__(self) -> None:
        self.n_ready = self.n_compiled = 0
        self.seconds = 0.0
        self._depth = 0
        self._compiled_since: float | None = None

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count the kernel that is compiled or loaded meanwhile."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if self._depth == 0:
                self.n_ready += 1
                if self._compiled_since is not None:
                    self.n_compiled += 1
                    self.seconds += time.monotonic() - self._compiled_since
                    self._compiled_since = None

    def compiles(self) -> None:
        """Say that what is counted has to be compiled."""
        if self._compiled_since is None:
            self._compiled_since = time.monotonic()

    def waits_for(self, n_expected: int) -> str | None:
        """Return what is still to come of so many, as "kernels 12 of 45,
        60 s left"; None: none was compiled.

        The time left is as if each kernel took as long as those before did; the largest take a
        hundred times as long as the smallest. Where it needs more than expected, it says how many
        there are.
        """
        if self._compiled_since is None and self.n_compiled == 0:
            return None
        report = f"kernels {self.n_ready}"
        if self.n_ready < n_expected:
            report += f" of {n_expected}"
            if self.n_compiled:
                seconds = (n_expected - self.n_ready) * self.seconds / self.n_compiled
                report += f", {max(1, round(seconds))} s left"
        return report


PROGRESS = Progress()
