"""The entry of the `xylem` command: what must be done before anything that takes time
is imported.
"""

import signal
import sys

from xylem.base import collect_seldom


def main() -> None:
    """Run the command line and exit.

    A SIGHUP tells a server to look at the store: one that comes while it starts must not end it.
    """
    if sys.argv[1:2] == ["serve"]:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    if sys.argv[1:2] in (["serve"], ["predict"]):  # most of what they do is to begin
        collect_seldom()
    from xylem.cli.application import main as run

    run()


if __name__ == "__main__":
    main()
