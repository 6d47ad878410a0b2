"""Profiles are settings that any of kafka-python's consumers takes."""

import subprocess
import sys
from collections.abc import Mapping

import pytest
from kafka import KafkaConsumer

from safeconsumer import profiles
from tests.harness.kafka.fixtures import Maker

PROFILES = [profiles.THROUGHPUT, profiles.LATENCY]


@pytest.mark.parametrize("profile", PROFILES)
def test_each_key_is_kafka_pythons_own(profile: Mapping[str, int]) -> None:
    """So a profile works with the class that this one replaces, too."""
    assert profile.keys() <= KafkaConsumer.DEFAULT_CONFIG.keys()


@pytest.mark.parametrize("profile", PROFILES)
def test_a_consumer_has_what_the_profile_says(
    safe: Maker, profile: Mapping[str, int]
) -> None:
    """And keeps the defaults of everything else, the sizes that follow from others too."""
    consumer = safe(**profile)
    assert {name: consumer.config[name] for name in profile} == profile
    answer = consumer.config["fetch_max_bytes"]
    partition = consumer.config["max_partition_fetch_bytes"]
    assert consumer.config["receive_message_max_bytes"] >= answer + partition


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_cannot_be_changed(profile: Mapping[str, int]) -> None:
    """It would change for everybody in the process."""
    with pytest.raises(TypeError):
        profile["group_id"] = 1  # type: ignore[index]  # that is what is tried


def test_reading_a_profile_imports_no_client() -> None:
    """Settings may be put together where no consumer is made."""
    script = (
        "import sys; import safeconsumer; safeconsumer.profiles.LATENCY; "
        "sys.exit('kafka' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], check=False)  # noqa: S603 - ours
    assert done.returncode == 0
