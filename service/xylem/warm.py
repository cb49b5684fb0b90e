"""`python -m xylem.warm [answers]`: compile the kernels before they are needed.

The exit status is 0, or 2 if the environment asks for a processor that is not supported.
"""

import sys

from xylem.base import prepare
from xylem_store import BadProcessor

_BAD_INPUT = 2


def main() -> int:
    """Compile all kernels, or only those that answers need.

    If the environment prevents that, print one line on standard error.
    """
    prepare()
    try:
        if sys.argv[1:] == ["answers"]:
            from xylem.server import compile_answers

            compile_answers()
        else:
            from xylem.server import compile_all  # the import checks the environment

            compile_all()
    except BadProcessor as error:
        sys.stderr.write(f"xylem: {error}\n")
        return _BAD_INPUT
    return 0


if __name__ == "__main__":
    sys.exit(main())
