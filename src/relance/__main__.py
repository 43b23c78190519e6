"""`python -m relance` is the command line."""

from relance.cli import main

if __name__ == "__main__":
    main()
