"""A plugin of pytest that gives the product a bug: `-p tests.mutants.alive --mutant NAME`."""

from __future__ import annotations

import pytest

from tests.mutants.hunt import named


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--mutant", required=True, help="the bug that the product has meanwhile")


def pytest_configure(config: pytest.Config) -> None:
    # Before the tests are imported: what they import by name is the patched one.
    bug = named(config.getoption("--mutant")).alive()
    bug.__enter__()
    config.add_cleanup(lambda: bug.__exit__(None, None, None))
