"""The entry of the `xylem` command: what must be done before anything that takes time
is imported.
"""

import signal
import sys
import threading
from typing import Any

from xylem.base import collect_seldom

AGAIN_SECONDS = 0.05
"""After so long Ctrl-C comes again, where Python dropped it: the callback has ended by then."""


def repeat_lost_interrupts() -> None:
    """Have Ctrl-C come again where Python drops it, so that it is never lost.

    Python ignores every exception in `__del__` and in callbacks of weak references, also
    KeyboardInterrupt. The compiler of kernels has many of them: a training went on after Ctrl-C,
    and published.
    """
    report = sys.unraisablehook

    def hook(unraisable: Any) -> None:
        if unraisable.exc_type is not KeyboardInterrupt:
            report(unraisable)
            return
        timer = threading.Timer(AGAIN_SECONDS, signal.raise_signal, (signal.SIGINT,))
        timer.daemon = True
        timer.start()

    sys.unraisablehook = hook


def main() -> None:
    """Run the command line and exit.

    A SIGHUP tells a server to look at the store: one that comes while it starts must not end it.
    """
    repeat_lost_interrupts()
    if sys.argv[1:2] == ["serve"]:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    if sys.argv[1:2] in (["serve"], ["predict"]):  # most of what they do is to begin
        collect_seldom()
    from xylem.cli.application import main as run

    run()


if __name__ == "__main__":
    main()
