"""`python -m tests.mutants`: the table of mutants."""

import sys

from tests.mutants.table import main

if __name__ == "__main__":
    sys.exit(main())
