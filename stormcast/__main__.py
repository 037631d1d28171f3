"""`python -m stormcast`, for where the script is not on the path."""

import sys

from stormcast.cli import main

sys.exit(main())
