"""The operator of a soak: it ends, whatever the brokers do."""

from pathlib import Path

import pytest
from kafka.errors import KafkaError

from safeconsumer.group.operator import Operator
from tests.sim.world import World
from tests.system.soak.operator import Operating
from tests.system.soak.settings import Settings


def test_a_hold_that_cannot_be_lifted_ends_the_soak(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where no broker comes back it would be lifted for ever, and the soak never end."""

    def refuse(*_: object) -> None:
        raise KafkaError

    monkeypatch.setattr(Operator, "write", refuse)
    settings = Settings(
        consumer="", minutes=1, faults=1, seed=1, brokers=1, rate=1, out=tmp_path
    )
    settings.journals.mkdir()
    world = World(limit=3600)

    def main() -> None:
        with Operating(settings, "nowhere:9092"):
            world.sleep(20)

    with pytest.raises(TimeoutError, match="could not be lifted within 120 s"):
        world.run(main)
