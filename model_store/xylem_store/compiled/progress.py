"""Count the kernels of this process and the time of compiling them, for progress messages."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Progress:
    """Counts the kernels that Python called; kernels that they call in turn are parts of them.

    n_ready      compiled or loaded so far
    n_compiled   compiled so far
    seconds      the time in which these were compiled

    It is written under numba's lock of the compiler, and can be read at any time.
    """

    def __init__(self) -> None:
        self.n_ready = self.n_compiled = 0
        self.seconds = 0.0
        self._depth = 0
        self._compiled_since: float | None = None

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count the kernel that is compiled or loaded in this context."""
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
        """Record that the kernel being counted has to be compiled."""
        if self._compiled_since is None:
            self._compiled_since = time.monotonic()

    def waits_for(self, n_expected: int) -> str | None:
        """Return the work that is left, as "kernels 12 of 45, 60 s left".

        n_expected  the number of kernels that are needed

        None if nothing was compiled. The time left assumes that each kernel takes as long as those
        before; the largest take a hundred times as long as the smallest. If there are more kernels
        than expected, only their number is given.
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
