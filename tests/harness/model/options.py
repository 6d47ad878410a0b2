"""
The model test's pytest options; ``tests/conftest.py`` calls the hook.

A hook that adds options works only in a plugin or in a conftest that pytest loads at
its start, which ``tests/conftest.py`` is.
"""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--model-examples``."""
    parser.getgroup("model").addoption(
        "--model-examples",
        type=int,
        default=None,
        metavar="N",
        help="model test: try N random histories (default: a number that takes a few "
        "seconds)",
    )
