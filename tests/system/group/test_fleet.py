"""Six processes, restarts and rebalances: nothing leaks from a later assignment."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.harness.group.team import Team
from tests.system.group.fleet import Fleet

pytestmark = [pytest.mark.real_broker, pytest.mark.timeout(1200)]


@pytest.fixture
def team(kafka_broker: Any) -> Iterator[Team]:  # noqa: ANN401 - any kind
    with Team(kafka_broker, partitions=12, records=200) as made:
        yield made


@pytest.fixture
def size(pytestconfig: pytest.Config) -> tuple[int, int]:
    """Tell how many restarts of one member, and of all."""
    return (100, 20) if pytestconfig.option.group_soak else (3, 2)


@pytest.mark.parametrize("cooperative", [False, True], ids=["eager", "cooperative"])
def test_rolling_and_full_restarts_leak_nothing(
    team: Team,
    size: tuple[int, int],
    record_property: Any,  # noqa: ANN401 - pytest's
    *,
    cooperative: bool,
) -> None:
    """Members leave, die, and come back while the group is held."""
    with Fleet(team, late=0.2, cooperative=cooperative) as fleet:
        fleet.until(fleet.is_settled, "the first assignment")
        team.operator_holds("@all")
        acknowledged = time.time()
        fleet.until(fleet.is_quiet, "the group to be quiet")
        team.produce(50)
        began = fleet.generations()
        for number in range(size[0]):
            one = fleet.members[0]
            (fleet.kill if number % 3 == 2 else fleet.stop)(one)
            fleet.start()
            fleet.until(fleet.is_quiet, "the group to be quiet again")
        rebalances = fleet.generations() - began
        for _ in range(size[1]):
            fleet.restart_all()
            fleet.until(fleet.is_quiet, "the restarted group to be quiet")
        record_property("rebalances", rebalances)
        assert rebalances >= size[0]
        assert fleet.leaked(acknowledged) == 0
        lifted = time.time()  # before: members may hear of it sooner than we return
        team.operator_lifts("@all")
        fleet.until(lambda: fleet.delivered(lifted) >= 600, "records after the resume")


def test_without_the_barrier_a_full_restart_leaks(team: Team) -> None:
    """The test above can fail."""
    with Fleet(team, late=None, barrier=False) as fleet:
        fleet.until(fleet.is_settled, "the first assignment")
        fleet.let_read()
        team.operator_holds("@all")
        acknowledged = time.time()
        fleet.until(fleet.is_quiet, "the group to be quiet")
        team.produce(50)
        fleet.restart_all()  # nobody lets these read the holds
        fleet.until(lambda: fleet.leaked(acknowledged) > 0, "a leak")
