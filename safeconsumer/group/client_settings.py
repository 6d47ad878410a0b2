"""Checks the names of kafka-python settings that are given for control clients alone."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient

from safeconsumer.errors.base import ControlSettingError

# A record that the client sends again by itself, because an answer was lost, undoes
# what others wrote to the same key meanwhile, and nobody is told. Idempotence would do,
# but wants a right of its own before Kafka 2.8.
WRITING: Mapping[str, Any] = {
    "acks": "all",
    "enable_idempotence": False,
    "retries": 0,
    "transactional_id": None,
}

# Control clients are no members of a group, and read and write bytes.
_NOT_TO_CHOOSE = frozenset(
    {
        *("allow_auto_create_topics", "auto_offset_reset", "enable_auto_commit"),
        *("group_id", "group_instance_id", "kafka_client"),
        *("key_deserializer", "key_serializer"),
        *("value_deserializer", "value_serializer"),
        *WRITING,
    }
)
_KNOWN = frozenset(
    name
    for one in (KafkaAdminClient, KafkaProducer, KafkaConsumer)
    for name in one.DEFAULT_CONFIG
)


def check(names: Iterable[str]) -> None:
    """
    Return if control clients can have settings with these names.

    What a value must be, kafka-python says: a client that it refuses leaves the control
    topics unavailable, with that as the reason.

    Raises:
        ControlSettingError: kafka-python does not know one, or it is not for a user to
            choose.
    """
    for name in names:
        if name in _NOT_TO_CHOOSE:
            message = f"client_configs: {name} cannot be set for control clients"
            raise ControlSettingError(message)
        if name not in _KNOWN:
            near = get_close_matches(str(name), _KNOWN, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            message = f"client_configs: kafka-python has no setting {name!r}{hint}"
            raise ControlSettingError(message)
