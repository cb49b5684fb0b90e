"""`python -m xylem`: the command line."""

from __future__ import annotations

from xylem.command import main

if __name__ == "__main__":
    main()
