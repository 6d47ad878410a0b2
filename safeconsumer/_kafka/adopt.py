"""
Puts our classes into a live ``KafkaConsumer``; no other module does so.

Upstream's constructor looks up the classes of its parts as globals of its module and
offers no seam. Those classes use no slots, so each live part is given our class, and
the attributes that our class needs beyond upstream's are made afterwards. This must
happen before the first ``subscribe``, while no join and no fetch can be under way.
"""

from kafka import KafkaConsumer
from kafka.cluster import ClusterMetadata
from kafka.consumer.fetcher import Fetcher
from kafka.consumer.subscription_state import SubscriptionState, TopicPartitionState
from kafka.coordinator.consumer import ConsumerCoordinator
from kafka.net.selector import NetworkSelector

from safeconsumer._kafka import compat
from safeconsumer._kafka.decoding.receiving import adopt_manager
from safeconsumer._kafka.fixes.cluster import PauseSafeCluster
from safeconsumer._kafka.handover.carrying import Handover
from safeconsumer._kafka.pausing.coordinator import PauseSafeCoordinator
from safeconsumer._kafka.pausing.fetcher import PauseSafeFetcher
from safeconsumer._kafka.pausing.subscription import LedgerSubscription
from safeconsumer.holds.ledger import PauseLedger


def adopt(
    consumer: KafkaConsumer,
    ledger: PauseLedger,
    parked_max_bytes: int,
    records: type = Fetcher.PartitionRecords,
    handover: Handover = Handover.OFF,
) -> None:
    """
    Give the parts of a new consumer our classes; doing it twice changes nothing more.

    Raises:
        UnsupportedKafkaPythonError: if a part lacks an attribute that we use; the
            consumer is still upstream's then.
    """
    if isinstance(consumer._subscription, LedgerSubscription):
        return
    compat.require_attributes(consumer, KafkaConsumer)
    compat.require_attributes(consumer._subscription, SubscriptionState)
    compat.require_attributes(TopicPartitionState(), TopicPartitionState)
    compat.require_attributes(consumer._fetcher, Fetcher)
    compat.require_attributes(consumer._coordinator, ConsumerCoordinator)
    compat.require_attributes(consumer._net, NetworkSelector)
    if type(consumer._cluster) is ClusterMetadata:  # not of a user's own client
        compat.require_attributes(consumer._cluster, ClusterMetadata)
        consumer._cluster.__class__ = PauseSafeCluster
    adopt_manager(consumer._manager)
    consumer._subscription.__class__ = LedgerSubscription
    consumer._subscription.ledger = ledger
    consumer._fetcher.__class__ = PauseSafeFetcher
    consumer._fetcher.prepare(
        parked_max_bytes, reports_delivery=type(consumer) is not KafkaConsumer
    )
    consumer._fetcher.PartitionRecords = records
    coordinator = consumer._coordinator
    coordinator.__class__ = PauseSafeCoordinator
    coordinator.prepare()
    # Imported when they are used: most consumers hand nothing over.
    if handover is Handover.OFFSETS:
        from safeconsumer._kafka.handover.offsets import MarksOnOffsets  # noqa: PLC0415

        coordinator.handover = MarksOnOffsets(
            coordinator, consumer._subscription, consumer.config["client_id"]
        )
    elif handover is Handover.ASSIGNOR:
        from safeconsumer._kafka.handover.assignor import MarksInJoins  # noqa: PLC0415

        coordinator.handover = MarksInJoins(coordinator, consumer._subscription)
    ledger.wakers = [consumer._fetcher.wake]
