"""`python -m xylem`: the command line."""

from xylem.command import main

if __name__ == "__main__":
    main()
