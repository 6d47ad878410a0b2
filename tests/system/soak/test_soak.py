"""The soak, as short as it can be."""

from pathlib import Path

import pytest

from tests.system.soak.cluster import Cluster
from tests.system.soak.plan import draws
from tests.system.soak.run import soak
from tests.system.soak.settings import Settings
from tests.system.soak.topics import Topics

pytestmark = [pytest.mark.java_brokers, pytest.mark.timeout(900)]


def test_twenty_faults_break_no_promise(tmp_path: Path) -> None:
    """
    Nothing is delivered while held, lost, or out of order, whatever happens.

    Only safety is asserted: how soon a resumed partition delivers depends on what else
    the machine has to do.
    """
    settings = Settings(
        consumer="safeconsumer.SafeConsumer",
        minutes=2.0,
        faults=20,
        seed=8,
        brokers=3,
        rate=200,
        out=tmp_path / "soak",
    )
    result = soak(settings)
    violations = result["violations"]
    assert violations == dict.fromkeys(violations, 0), settings.out
    assert result["overtaken"] == []
    assert result["crashed"] == []
    assert result["left"] == {}
    assert result["faults_total"] >= 15
    assert result["delivered"] >= result["acknowledged"] > 5000
    assert result["pairs"] > 20
    assert result["rebalances"] > 5


def test_there_is_no_coordinator_to_move_before_a_member_asks_for_it() -> None:
    """A first fault of this kind ended the soak."""
    with Cluster(1) as cluster:
        topics = Topics(cluster.inner, 1)
        try:
            topics.create_all()
            assert topics.move_coordinator(next(draws(1))) is None
        finally:
            topics.close()
