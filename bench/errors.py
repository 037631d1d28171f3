"""What can go wrong in a bench run."""


class BenchError(Exception):
    """What was to be measured could not be: said in one line, with the words of whoever failed."""
