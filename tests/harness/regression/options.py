"""
The regression suite's pytest option; ``tests/conftest.py`` imports the hook.

A hook that adds options works only in a plugin or in a conftest that pytest loads at
its start, which ``tests/conftest.py`` is and ``tests/broker/regression/conftest.py`` is
not.
"""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--full``: every combination instead of every pair."""
    parser.addoption(
        "--full",
        action="store_true",
        default=False,
        help="regression suite: all combinations of client, assignor and way of "
        "reading instead of all pairs",
    )
