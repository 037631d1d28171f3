"""The error of a bench run."""


class BenchError(Exception):
    """Something could not be measured; the text says why, in the words of the program that
    failed."""
