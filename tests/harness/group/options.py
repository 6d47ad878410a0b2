"""Options of the group control tests; ``tests/conftest.py`` calls the hook."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--group-soak``."""
    group = parser.getgroup("group control")
    group.addoption(
        "--group-soak",
        action="store_true",
        default=False,
        help="group control: 200 rebalances and 20 full restarts, for a quarter hour",
    )
