"""Long runs of the model test take as long as was asked for."""

import pytest


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Lift the time limit of a run whose length was given by ``--model-examples``."""
    if config.getoption("--model-examples", default=None):
        for item in items:
            if item.name == "test_every_history_keeps_what_is_promised":
                item.add_marker(pytest.mark.timeout(0))
