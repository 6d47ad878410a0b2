"""Defines fixtures for tests of group control."""

import pytest

from tests.harness.group.secured import SecuredBroker, Story
from tests.harness.group.team import Team


@pytest.fixture
def team(kafka_broker):
    with Team(kafka_broker) as made:
        yield made


@pytest.fixture
def time_to_look(monkeypatch):
    """Let a waiting command spend enough time on each view, even on a busy machine."""
    monkeypatch.setattr("safeconsumer.cli.waiting._MIN_LOOK", 20.0)


@pytest.fixture(scope="module")
def secured():
    """Start and yield a broker with passwords and ACLs."""
    with SecuredBroker() as broker:
        yield broker


@pytest.fixture
def story(secured, tmp_path):
    with Team(secured) as team:
        made = Story(team, tmp_path)
        made.set_up()
        yield made
