"""What the picture of a soak says of itself."""

from pathlib import Path

import pytest

from tests.system.soak.picture import title
from tests.system.soak.settings import Settings


@pytest.mark.parametrize(
    ("consumer", "said"),
    [
        (
            "safeconsumer.SafeConsumer",
            "SafeConsumer in the churn soak, seed 8",
        ),
        (
            "kafka.KafkaConsumer",
            "KafkaConsumer in the churn soak, seed 8; wider holds through a shim",
        ),
    ],
)
def test_a_picture_says_whose_the_wider_holds_are(consumer: str, said: str) -> None:
    """A client without holds of topics, patterns and consumers was told them otherwise."""
    settings = Settings(
        consumer=consumer,
        minutes=1.0,
        faults=None,
        seed=8,
        brokers=1,
        rate=1,
        out=Path("soak"),
    )
    assert title(settings) == said
