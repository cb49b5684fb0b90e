"""The entry of the `xylem` command: what must be done before slow imports."""

import signal
import sys
import threading
from typing import Any

from xylem.base import collect_seldom

# The delay before a lost Ctrl-C is sent again: by then the code that lost it has returned.
REPEAT_SECONDS = 0.05


def main() -> None:
    """Run the command line and exit.

    SIGHUP makes a server look at the store: one that comes while the server starts must not end it.
    """
    if sys.argv[1:2] == ["serve"]:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    sys.unraisablehook = _repeat_interrupt
    if sys.argv[1:2] in (["serve"], ["predict"]):  # starting is most of their work
        collect_seldom()
    from xylem.cli.application import main as run

    run()


def _repeat_interrupt(unraisable: Any) -> None:
    """Send Ctrl-C again if Python ignored it; report any other ignored exception as Python does.

    Python ignores what is raised in a finalizer or in the callback of a weak reference, a
    KeyboardInterrupt too: a training would go on to its end. The signal is sent to the main thread,
    because that thread may be in a system call that only a signal to it interrupts. It is sent a
    moment later, because an exception that is raised in this function is ignored too.
    """
    if unraisable.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(unraisable)
        return
    timer = threading.Timer(
        REPEAT_SECONDS, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)
    )
    timer.daemon = True
    timer.start()


if __name__ == "__main__":
    main()
