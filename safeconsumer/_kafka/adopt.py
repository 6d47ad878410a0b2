"""
Replaces the classes of the parts of a live ``KafkaConsumer``; no other module does.

Upstream's constructor looks up the classes of its parts in the globals of its module.
These classes have no slots, so ``__class__`` of each live part can be set to our class,
which then adds the attributes that it needs. The replacement happens before the first
``subscribe``, when no join and no fetch can be in progress.
"""

from kafka import KafkaConsumer
from kafka.cluster import ClusterMetadata
from kafka.consumer.fetcher import Fetcher

from safeconsumer._kafka.decoding.receiving import adopt_manager
from safeconsumer._kafka.fixes.cluster import PauseSafeCluster
from safeconsumer._kafka.fixes.waits import adopt_network
from safeconsumer._kafka.pausing.coordinator import PauseSafeCoordinator
from safeconsumer._kafka.pausing.fetcher import PauseSafeFetcher
from safeconsumer._kafka.pausing.subscription import LedgerSubscription
from safeconsumer.holds.ledger import PauseLedger


def adopt(
    consumer: KafkaConsumer,
    ledger: PauseLedger,
    parked_max_bytes: int,
    records: type = Fetcher.PartitionRecords,
    *,
    hands_over: bool = False,
) -> None:
    """Set the classes of a new consumer's parts to ours; its constructor calls this once."""
    # A cluster object of any other class belongs to a user's own client.
    if type(consumer._cluster) is ClusterMetadata:
        consumer._cluster.__class__ = PauseSafeCluster
    if not consumer.config["allow_auto_create_topics"]:
        # kafka-python 3.0.12 does not pass this setting on to the object that builds
        # requests.
        consumer._cluster.config["allow_auto_create_topics"] = False
    adopt_manager(consumer._manager)
    adopt_network(consumer._net)
    consumer._subscription.__class__ = LedgerSubscription
    consumer._subscription.prepare(ledger)
    if isinstance(consumer._cluster, PauseSafeCluster):
        consumer._subscription.newest_id = consumer._cluster.known_id
        consumer._subscription.is_missing = consumer._cluster.is_missing
        consumer._subscription.ask_ids = consumer._cluster.request_update
        consumer._cluster.on_ids = consumer._subscription.compare_ids
    consumer._fetcher.__class__ = PauseSafeFetcher
    consumer._fetcher.prepare(parked_max_bytes, reports_delivery=True)
    consumer._fetcher.PartitionRecords = records
    coordinator = consumer._coordinator
    coordinator.__class__ = PauseSafeCoordinator
    coordinator.prepare(consumer._fetcher.wakeup)
    if isinstance(consumer._cluster, PauseSafeCluster):
        consumer._cluster.on_answer = coordinator.note_missing_topics
    if hands_over:  # imported late, because most consumers do not hand over pauses
        from safeconsumer._kafka.handover import hand_over  # noqa: PLC0415

        hand_over(coordinator)
    ledger.wakers = [consumer._fetcher.wake]
