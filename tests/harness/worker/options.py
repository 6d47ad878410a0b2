"""The worker tests' pytest option; ``tests/conftest.py`` calls the hook."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--worker-rounds``."""
    parser.getgroup("worker").addoption(
        "--worker-rounds",
        type=int,
        default=3,
        metavar="N",
        help="worker tests: so many members come and go while one is throttled "
        "(each makes two rebalances); more than 3 also freezes a member for 15 s",
    )
