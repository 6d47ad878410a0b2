"""
What tests of the console share.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.console.harness import Served, console, until_complete
from tests.group.team import Team


@pytest.fixture
def team(kafka_broker: Any) -> Iterator[Team]:  # noqa: ANN401 - any kind
    with Team(kafka_broker) as made:
        yield made


@pytest.fixture
def served(team: Team) -> Iterator[Served]:
    with console(team) as made:
        until_complete(made)
        yield made
