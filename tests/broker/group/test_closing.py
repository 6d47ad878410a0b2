"""Closing a consumer with ``control=`` takes no longer than it was given."""

import threading
from typing import Any

import pytest

from safeconsumer import Control, SafeConsumer
from safeconsumer.group import clients
from tests.harness.group.team import Team
from tests.harness.kafka.offline import silent_broker


def control_threads() -> list[threading.Thread]:
    """Return our threads that run."""
    return [
        thread
        for thread in threading.enumerate()
        if thread.name.startswith(("safeconsumer-control", "safeconsumer-status"))
    ]


def test_a_client_that_is_made_too_late_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A close does not wait for it; the thread that came too late with it ends it."""
    making, go_on, made = threading.Event(), threading.Event(), []
    make = clients.producer

    def slowly(*args: Any) -> Any:  # noqa: ANN401 - kafka-python is untyped
        making.set()
        assert go_on.wait(30)
        made.append(make(*args))
        return made[0]

    monkeypatch.setattr(clients, "producer", slowly)
    with silent_broker() as address:
        before = set(control_threads())
        consumer = SafeConsumer(
            "orders",
            bootstrap_servers=address,
            api_version=(2, 3),
            group_id="g",
            control=Control(start_timeout=0.0, status_interval=0.2),
        )
        own = set(control_threads()) - before
        status = next(one for one in own if "status" in one.name)
        assert making.wait(30)
        consumer.close(autocommit=False, timeout_ms=500)
        assert status.is_alive()
        go_on.set()
        status.join(30)
    assert made[0]._closed


@pytest.mark.embedded_broker
def test_what_nobody_answers_is_given_up(team: Team) -> None:
    """kafka-python raises out of its producer's close(), and leaves its thread."""
    before = set(threading.enumerate())
    consumer = team.subscribed("a", control=team.quick)
    team.settled(consumer)
    with team.broker.hold("Produce", client_id="a-control") as reports:
        reports.wait()
        consumer.close(autocommit=False, timeout_ms=1000)
        left = [one for one in threading.enumerate() if one not in before]
    producers = [one for one in left if "producer" in one.name]
    for one in producers:
        one.join(10)
    assert not any(one.is_alive() for one in producers)
