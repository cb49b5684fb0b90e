"""`python -m xylem.warm [answers]`: status 0, or 2 where the
environment asks for what is not there.
"""

import sys

from xylem.base import prepare
from xylem_store import BadProcessor

_BAD_INPUT = 2


def main() -> int:
    """Compile all kernels, or those of answers; what stands in the
    way is one line on standard error.
    """
    prepare()
    try:
        if sys.argv[1:] == ["answers"]:
            from xylem.server import compile_answers

            compile_answers()
        else:
            from xylem.server import compile_all  # looks at the environment while it is imported

            compile_all()
    except BadProcessor as error:
        sys.stderr.write(f"xylem: {error}\n")
        return _BAD_INPUT
    return 0


if __name__ == "__main__":
    sys.exit(main())
