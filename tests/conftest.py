"""How hard hypothesis tries (`ci` for every run, `fuzz` for the long ones: `make fuzz`), and that
Ctrl-C means something."""

import signal
from pathlib import Path

from hypothesis import settings
from hypothesis.database import DirectoryBasedExampleDatabase

_FAILURES = Path(__file__).parent.parent / ".hypothesis" / "examples"

# Derandomized: one commit has one verdict on every machine. Looking for new failures is fuzzing.
# No deadlines: how long an example takes says more about the machine than about the code.
settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    max_examples=100,
    print_blob=True,
)
settings.register_profile(
    "fuzz",
    derandomize=False,
    deadline=None,
    max_examples=2_000,
    print_blob=True,
    database=DirectoryBasedExampleDatabase(_FAILURES),
)
settings.load_profile("ci")

# What a script starts in the background ignores Ctrl-C, and all that it starts in turn: then a test
# that sends one would wait for nothing.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
