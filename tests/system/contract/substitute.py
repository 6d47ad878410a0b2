"""
A pytest plugin that replaces four of upstream's classes with ours.

Only ``python -m tests.system.contract.upstream``, which runs upstream's own tests, uses
the plugin.
"""

import kafka
import kafka.consumer
import kafka.consumer.fetcher
import kafka.consumer.group
import kafka.consumer.subscription_state
import kafka.coordinator.consumer

from safeconsumer import SafeConsumer
from safeconsumer._kafka.pausing.coordinator import PauseSafeCoordinator
from safeconsumer._kafka.pausing.fetcher import PauseSafeFetcher
from safeconsumer._kafka.pausing.subscription import LedgerSubscription

# Upstream's ``test_package`` checks the class's name.
SafeConsumer.__name__ = "KafkaConsumer"

for module, name, ours in (
    (kafka, "KafkaConsumer", SafeConsumer),
    (kafka.consumer, "KafkaConsumer", SafeConsumer),
    (kafka.consumer.group, "KafkaConsumer", SafeConsumer),
    (kafka.consumer.fetcher, "Fetcher", PauseSafeFetcher),
    (kafka.consumer.subscription_state, "SubscriptionState", LedgerSubscription),
    (kafka.coordinator.consumer, "ConsumerCoordinator", PauseSafeCoordinator),
):
    setattr(module, name, ours)
