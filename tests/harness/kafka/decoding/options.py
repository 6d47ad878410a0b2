"""The fuzz test's pytest option; ``tests/conftest.py`` calls the hook."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--fuzz-seconds``."""
    parser.getgroup("records").addoption(
        "--fuzz-seconds",
        type=float,
        default=1.0,
        metavar="N",
        help="damage record batches at random for N seconds (default: 1)",
    )
