"""
Lists the private names of kafka-python that this package uses, and checks them.

Each name below is used somewhere in this package and pinned by a contract test
(``tests/unit/contract/test_private_names.py``), which also finds names that are used
and not listed: private ones, and those that look public but belong to parts of a
consumer that upstream does not document. When upstream changes one, construction fails
with a typed error instead of ``poll`` misbehaving later; code that is only faster than
upstream's is not used then. If even the imports below fail, the package root raises the
same error.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import cache

import kafka
from kafka import cluster, future, metrics, structs
from kafka.consumer import fetcher, group, subscription_state
from kafka.coordinator import base, consumer, heartbeat
from kafka.coordinator.assignors import abstract
from kafka.coordinator.assignors import range as ranges
from kafka.metrics.stats import sensor
from kafka.net import compat as clients
from kafka.net import connection, manager, selector, transport
from kafka.net import metrics as connection_metrics
from kafka.protocol import frame, parser
from kafka.record import default_records, memory_records

from safeconsumer._kafka.installed import SUPPORTED, is_supported, not_supported

# For each method its class, its name, and the leading parameters it must take.
METHODS: tuple[tuple[type, str, tuple[str, ...]], ...] = (
    (
        subscription_state.SubscriptionState,
        "_apply_assignment",
        ("self", "partitions", "randomize"),
    ),
    (subscription_state.SubscriptionState, "unsubscribe", ("self",)),
    (subscription_state.SubscriptionState, "is_fetchable", ("self", "partition")),
    (subscription_state.SubscriptionState, "is_paused", ("self", "partition")),
    (subscription_state.SubscriptionState, "fetchable_partitions", ("self",)),
    (subscription_state.SubscriptionState, "paused_partitions", ("self",)),
    (subscription_state.SubscriptionState, "all_consumed_offsets", ("self",)),
    (
        subscription_state.SubscriptionState,
        "assign_from_subscribed",
        ("self", "assignments"),
    ),
    (subscription_state.SubscriptionState, "assigned_partitions", ("self",)),
    (subscription_state.SubscriptionState, "missing_fetch_positions", ("self",)),
    (subscription_state.SubscriptionState, "partitions_auto_assigned", ("self",)),
    (subscription_state.SubscriptionState, "pause", ("self", "partition")),
    (subscription_state.SubscriptionState, "position", ("self", "partition")),
    (subscription_state.SubscriptionState, "resume", ("self", "partition")),
    (subscription_state.SubscriptionState, "seek", ("self", "partition", "offset")),
    (
        subscription_state.SubscriptionState,
        "set_reset_pending",
        ("self", "partitions", "next_allowed_reset_time"),
    ),
    (
        subscription_state.SubscriptionState,
        "reset_failed",
        ("self", "partitions", "next_retry_time"),
    ),
    (
        subscription_state.SubscriptionState,
        "set_validation_pending",
        ("self", "partitions", "next_allowed_retry_time"),
    ),
    (
        subscription_state.SubscriptionState,
        "validation_failed",
        ("self", "partitions", "next_allowed_retry_time"),
    ),
    (subscription_state.TopicPartitionState, "is_fetchable", ("self",)),
    (subscription_state.TopicPartitionState, "is_missing_position", ("self",)),
    (subscription_state.TopicPartitionState, "reset", ("self", "strategy")),
    (subscription_state.TopicPartitionState, "seek", ("self", "offset")),
    (
        fetcher.Fetcher,
        "fetched_records",
        ("self", "max_records", "update_offsets"),
    ),
    (
        fetcher.Fetcher,
        "fetch_records",
        ("self", "max_records", "update_offsets", "timeout_ms"),
    ),
    (
        fetcher.Fetcher,
        "_append",
        ("self", "drained", "part", "max_records", "update_offsets"),
    ),
    (fetcher.Fetcher, "_parse_fetched_data", ("self", "completed_fetch")),
    (fetcher.Fetcher.PartitionRecords, "take", ("self", "n")),
    (fetcher.Fetcher.PartitionRecords, "drain", ("self",)),
    (
        fetcher.Fetcher.PartitionRecords,
        "_unpack_records",
        ("self", "tp", "records", "key_deserializer", "value_deserializer"),
    ),
    (fetcher.Fetcher.PartitionRecords, "_maybe_skip_record", ("self", "record")),
    (
        fetcher.Fetcher.PartitionRecords,
        "_deserialize",
        ("self", "deserializer", "topic", "headers", "data"),
    ),
    (
        fetcher.Fetcher.PartitionRecords,
        "_consume_aborted_transactions_up_to",
        ("self", "offset"),
    ),
    (fetcher.Fetcher.PartitionRecords, "_contains_abort_marker", ("self", "batch")),
    (fetcher.Fetcher.PartitionRecords, "_is_batch_aborted", ("self", "batch")),
    (fetcher.Fetcher.PartitionRecords, "_maybe_raise_next_inline_exception", ("self",)),
    (fetcher.Fetcher, "_fetchable_partitions", ("self",)),
    (fetcher.Fetcher, "_create_fetch_requests", ("self",)),
    (fetcher.Fetcher, "_select_read_replica", ("self", "tp")),
    (fetcher.Fetcher, "_send_fetches_async", ("self",)),
    (fetcher.Fetcher, "send_fetches", ("self",)),
    (fetcher.Fetcher, "close", ("self",)),
    (
        fetcher.Fetcher,
        "_handle_fetch_response",
        ("self", "node_id", "fetch_offsets", "send_time", "response"),
    ),
    (
        fetcher.Fetcher,
        "_reset_offset_if_needed",
        ("self", "partition", "timestamp", "offset"),
    ),
    (
        fetcher.Fetcher,
        "_reset_offsets_for_node",
        ("self", "node_id", "timestamps_and_epochs", "partitions"),
    ),
    (
        fetcher.Fetcher,
        "_fetch_offsets_by_times_async",
        ("self", "timestamps", "timeout_ms"),
    ),
    (
        fetcher.FetchResponseMetricAggregator,
        "record",
        ("self", "partition", "num_bytes", "num_records"),
    ),
    (sensor.Sensor, "record", ("self", "value")),
    (future.Future, "add_both", ("self", "f")),
    (future.Future, "add_callback", ("self", "f")),
    (future.Future, "add_errback", ("self", "f")),
    (future.Future, "success", ("self", "value")),
    (memory_records.MemoryRecords, "next_batch", ("self",)),
    (default_records.DefaultRecordBatch, "has_producer_id", ("self",)),
    (default_records.DefaultRecordBatch, "validate_crc", ("self",)),
    (selector.NetworkSelector, "call_soon_threadsafe", ("self", "callback")),
    (selector.NetworkSelector, "call_soon_with_future", ("self", "coro")),
    (selector.NetworkSelector, "run", ("self", "coro")),
    (manager.KafkaConnectionManager, "call_soon", ("self", "coro")),
    (manager.KafkaConnectionManager, "send", ("self", "request", "node_id")),
    (manager.KafkaConnectionManager, "wait_for", ("self", "future", "timeout_ms")),
    (abstract.AbstractPartitionAssignor, "assign", ("self", "cluster", "members")),
    (abstract.AbstractPartitionAssignor, "metadata", ("self", "topics")),
    (
        abstract.AbstractPartitionAssignor,
        "on_assignment",
        ("self", "assignment", "generation"),
    ),
    (abstract.AbstractPartitionAssignor, "supported_protocols", ("self",)),
    (base.Generation, "is_lost", ("self",)),
    (subscription_state.SubscriptionState, "reset_missing_positions", ("self",)),
    (heartbeat.Heartbeat, "poll", ("self",)),
    (
        consumer.ConsumerCoordinator,
        "close",
        ("self", "autocommit", "timeout_ms"),
    ),
    (consumer.ConsumerCoordinator, "coordinator", ("self",)),
    (consumer.ConsumerCoordinator, "request_rejoin", ("self",)),
    (consumer.ConsumerCoordinator, "group_protocols", ("self",)),
    (
        consumer.ConsumerCoordinator,
        "_on_join_prepare_async",
        ("self", "generation", "member_id", "timeout_ms"),
    ),
    (
        consumer.ConsumerCoordinator,
        "_on_join_complete_async",
        ("self", "generation", "member_id", "protocol", "member_assignment_bytes"),
    ),
    (consumer.ConsumerCoordinator, "need_rejoin", ("self",)),
    (consumer.ConsumerCoordinator, "poll", ("self", "timeout_ms")),
    (consumer.ConsumerCoordinator, "time_to_next_poll", ("self",)),
    (
        consumer.ConsumerCoordinator,
        "_invoke_completed_offset_commit_callbacks",
        ("self",),
    ),
    (
        consumer.ConsumerCoordinator,
        "_handle_offset_commit_response",
        ("self", "offsets", "send_time", "response"),
    ),
    (
        consumer.ConsumerCoordinator,
        "fetch_committed_offsets_async",
        ("self", "partitions", "timeout_ms"),
    ),
    (
        consumer.ConsumerCoordinator,
        "refresh_committed_offsets_if_needed_async",
        ("self", "timeout_ms"),
    ),
    (
        consumer.ConsumerCoordinator,
        "_handle_offset_fetch_response",
        ("self", "response"),
    ),
    (base.BaseCoordinator, "_failed_request", ("self", "node_id", "request", "error")),
    (base.BaseCoordinator, "_send_heartbeat_request", ("self",)),
    (base.BaseCoordinator, "group_metadata", ("self",)),
    (consumer.ConsumerCoordinator, "_auto_assign_all_partitions", ("self",)),
    (consumer.ConsumerCoordinator, "maybe_auto_commit_offsets_now", ("self",)),
    (base.BaseCoordinator, "ensure_active_group", ("self", "timeout_ms")),
    (base.BaseCoordinator, "ensure_coordinator_ready", ("self", "timeout_ms")),
    (base.BaseCoordinator, "reset_generation", ("self", "member_id")),
    (
        consumer.ConsumerCoordinator,
        "_send_offset_commit_request",
        ("self", "offsets"),
    ),
    (base.BaseCoordinator, "join_group_async", ("self", "timeout_ms")),
    (base.BaseCoordinator, "_do_join_and_sync_async", ("self",)),
    (base.BaseCoordinator, "stable", ("self",)),
    (base.BaseCoordinator, "_enable_heartbeat", ("self",)),
    (clients.KafkaNetClient, "close", ("self",)),
    (clients.KafkaNetClient, "connection_delay", ("self", "node_id")),
    (clients.KafkaNetClient, "is_disconnected", ("self", "node_id")),
    (cluster.ClusterMetadata, "broker_metadata", ("self", "broker_id")),
    (cluster.ClusterMetadata, "metadata_request", ("self",)),
    (cluster.ClusterMetadata, "partitions_for_topic", ("self", "topic")),
    (cluster.ClusterMetadata, "topic_id", ("self", "topic_name")),
    (cluster.ClusterMetadata, "topics", ("self",)),
    (cluster.ClusterMetadata, "update_metadata", ("self", "metadata")),
    (cluster.ClusterMetadata, "request_update", ("self",)),
    (metrics.Metrics, "metric_name", ("self", "name", "group", "description")),
    (metrics.Metrics, "add_metric", ("self", "metric_name", "measurable")),
    (group.KafkaConsumer, "_poll_once", ("self", "timer", "max_records")),
    (group.KafkaConsumer, "_message_generator_v2", ("self",)),
)

# The names that receiving needs; where they differ, upstream's receiving is used.
RECEIVING_METHODS: tuple[tuple[type, str, tuple[str, ...]], ...] = (
    (
        manager.KafkaConnectionManager,
        "_build_transport",
        ("self", "node", "timeout_at"),
    ),
    (transport.KafkaTCPTransport, "_read_from_sock", ("self",)),
    (transport.KafkaTCPTransport, "abort", ("self", "error")),
    (selector.NetworkSelector, "wait_read", ("self", "fileobj")),
    (connection.KafkaConnection, "data_received", ("self", "data")),
    (parser.KafkaProtocol, "receive_bytes", ("self", "data")),
    (parser.KafkaProtocol, "_validate_frame_size", ("self", "nbytes")),
    (parser.KafkaProtocol, "_process_response", ("self", "read_buffer")),
    (frame.KafkaBytes, "read", ("self", "nbytes")),
    (frame.KafkaBytes, "seek", ("self", "idx")),
    (frame.KafkaBytes, "tell", ("self",)),
    (cluster.ClusterMetadata, "bootstrap_brokers", ("self",)),
    (connection.KafkaConnection, "connection_made", ("self", "transport")),
)

COROUTINES = (
    (fetcher.Fetcher, "_fetch_offsets_by_times_async"),
    (fetcher.Fetcher, "_reset_offsets_for_node"),
    (fetcher.Fetcher, "_send_fetches_async"),
    (consumer.ConsumerCoordinator, "_on_join_prepare_async"),
    (consumer.ConsumerCoordinator, "_send_offset_commit_request"),
    (consumer.ConsumerCoordinator, "_on_join_complete_async"),
    (consumer.ConsumerCoordinator, "fetch_committed_offsets_async"),
    (consumer.ConsumerCoordinator, "refresh_committed_offsets_if_needed_async"),
    (base.BaseCoordinator, "join_group_async"),
    (base.BaseCoordinator, "_do_join_and_sync_async"),
    (base.BaseCoordinator, "_send_heartbeat_request"),
)

RECEIVING_COROUTINES = (
    (connection.KafkaConnection, "_get_api_versions"),
    (connection.KafkaConnection, "_sasl_authenticate"),
    (manager.KafkaConnectionManager, "_build_transport"),
    (transport.KafkaTCPTransport, "_read_from_sock"),
)

# The fields, in order, of the tuples that are made or taken apart here.
FIELDS: dict[type, tuple[str, ...]] = {
    fetcher.CompletedFetch: (
        "topic_partition",
        "fetched_offset",
        "response_version",
        "partition_data",
        "metric_aggregator",
    ),
    fetcher.ConsumerRecord: (
        "topic",
        "partition",
        "leader_epoch",
        "offset",
        "timestamp",
        "timestamp_type",
        "key",
        "value",
        "headers",
        "checksum",
        "serialized_key_size",
        "serialized_value_size",
        "serialized_header_size",
    ),
    fetcher.ExceptionMetadata: ("partition", "fetched_offset", "exception"),
}

# The attributes objects must have: SAMPLES at construction, live ones when adopted.
ATTRIBUTES: dict[type, tuple[str, ...]] = {
    subscription_state.SubscriptionState: (
        "_lock",
        "assignment",
        "subscription",
        "subscribed_pattern",
        "subscription_type",
        "_default_offset_reset_strategy",
    ),
    subscription_state.TopicPartitionState: (
        "_position",
        "highwater",
        "position",
        "reset_strategy",
    ),
    fetcher.Fetcher: (
        "_subscriptions",
        "_manager",
        "_net",
        "_completed_fetches",
        "_next_partition_records",
        "_paused_completed_fetches",
        "_paused_partition_records",
        "_next_in_line_exception_metadata",
        "_nodes_with_pending_fetch_requests",
        "_fetch_futures",
        "_reset_task",
        "_sensors",
        "config",
    ),
    fetcher.Fetcher.PartitionRecords: (
        "_next_inline_exception",
        "aborted_producer_ids",
        "bytes_read",
        "check_crcs",
        "fetch_offset",
        "isolation_level",
        "leader_epoch",
        "metric_aggregator",
        "next_fetch_offset",
        "record_iterator",
        "records_read",
        "topic_partition",
    ),
    fetcher.FetchManagerMetrics: ("records_fetch_lag",),
    future.Future: ("exception", "is_done"),
    default_records.DefaultRecordBatch: (
        "_buffer",
        "base_offset",
        "compression_type",
        "first_timestamp",
        "is_control_batch",
        "last_offset",
        "magic",
        "max_timestamp",
        "next_offset",
        "producer_id",
        "records_count",
        "timestamp_type",
    ),
    default_records.DefaultRecord: ("size_in_bytes",),
    abstract.AbstractPartitionAssignor: ("name",),
    ranges.RangePartitionAssignor: ("version",),
    abstract.RebalanceProtocol: ("COOPERATIVE", "EAGER"),
    subscription_state.SubscriptionType: ("AUTO_PATTERN", "AUTO_TOPICS", "NONE"),
    structs.MemberState: ("REBALANCING",),
    base.Generation: ("generation_id", "member_id"),
    heartbeat.Heartbeat: ("config", "last_receive"),
    consumer.ConsumerCoordinator: (
        "_assignment_snapshot",
        "_assignors",
        "_client",
        "_lock",
        "_metadata_snapshot",
        "_subscription",
        "_joined_subscription",
        "_generation",
        "_join_task",
        "_manager",
        "_net",
        "_offset_fetch_futures",
        "_rebalance_protocol",
        "config",
        "coordinator_id",
        "group_id",
        "heartbeat",
        "rejoining",
        "rejoin_needed",
        "state",
    ),
    cluster.ClusterMetadata: ("_topics", "config", "need_all_topic_metadata"),
    clients.KafkaNetClient: ("cluster",),
    group.KafkaConsumer: (
        "_subscription",
        "_fetcher",
        "_coordinator",
        "_client",
        "_cluster",
        "_manager",
        "_metrics",
        "_net",
        "_closed",
        "_iterator",
        "_consumer_timeout",
        "config",
    ),
    manager.KafkaConnectionManager: ("cluster",),
    selector.NetworkSelector: ("_io_thread",),
}

RECEIVING_ATTRIBUTES: dict[type, tuple[str, ...]] = {
    transport.KafkaTCPTransport: (
        "_net",
        "_sock",
        "_protocol",
        "_read",
        "_closed",
        "last_read",
    ),
    connection.KafkaConnection: ("parser", "_sensors"),
    connection_metrics.KafkaConnectionMetrics: ("bytes_received",),
    parser.KafkaProtocol: ("_ident",),
}

# Makes one object of each class, or a stand-in with its attributes; opens nothing.
SAMPLES: dict[type, Callable[[], object]] = {
    fetcher.Fetcher.PartitionRecords: lambda: fetcher.Fetcher.PartitionRecords(
        0, None, None
    ),
    fetcher.FetchManagerMetrics: lambda: fetcher.FetchManagerMetrics(
        metrics.Metrics(), ""
    ),
    future.Future: future.Future,
    default_records.DefaultRecordBatch: lambda: default_records.DefaultRecordBatch(
        bytes(100)
    ),
    default_records.DefaultRecord: lambda: default_records.DefaultRecord,
    abstract.AbstractPartitionAssignor: lambda: abstract.AbstractPartitionAssignor,
    ranges.RangePartitionAssignor: lambda: ranges.RangePartitionAssignor,
    abstract.RebalanceProtocol: lambda: abstract.RebalanceProtocol,
    subscription_state.SubscriptionType: lambda: subscription_state.SubscriptionType,
    structs.MemberState: lambda: structs.MemberState,
    base.Generation: lambda: base.Generation(0, "", None),
    heartbeat.Heartbeat: heartbeat.Heartbeat,
    clients.KafkaNetClient: lambda: clients.KafkaNetClient,
    transport.KafkaTCPTransport: lambda: transport.KafkaTCPTransport(None, None),
    connection.KafkaConnection: lambda: connection.KafkaConnection(None),
    connection_metrics.KafkaConnectionMetrics: (
        lambda: connection_metrics.KafkaConnectionMetrics(metrics.Metrics(), "", "0")
    ),
    parser.KafkaProtocol: parser.KafkaProtocol,
}


@cache
def require_supported() -> None:
    """
    Refuse an unsupported kafka-python; it costs nothing after the first time.

    Raises:
        UnsupportedKafkaPythonError: the message names the version found, the supported
            range and what is missing.
    """
    missing = [*_version_problems(kafka.__version__), *_name_problems()]
    if missing:
        found = f"kafka-python {kafka.__version__}"
        raise not_supported(found, "; ".join(missing))


def require_attributes(live: object, kind: type) -> None:
    """
    Refuse a live object of upstream that lacks an attribute we use.

    Raises:
        UnsupportedKafkaPythonError: the message names the attribute that is missing.
    """
    for name in ATTRIBUTES[kind]:
        if not hasattr(live, name):
            found = f"kafka-python {kafka.__version__}"
            raise not_supported(found, f"{kind.__name__} has no {name}")


def _version_problems(version: str) -> Iterator[str]:
    if not is_supported(version):
        yield f"supported is {SUPPORTED}"


def _name_problems() -> Iterator[str]:
    yield from _method_problems(METHODS)
    yield from _coroutine_problems(COROUTINES)
    yield from _attribute_problems(ATTRIBUTES)
    for kind, fields in FIELDS.items():
        found = getattr(kind, "_fields", ())
        if found != fields:
            yield f"{kind.__name__} has the fields {', '.join(found)}"
    for name in ("SubscriptionState", "Fetcher", "ConsumerCoordinator"):
        if not hasattr(group, name):
            yield f"kafka.consumer.group.{name} is gone"


def receiving_problems() -> Iterator[str]:
    """Yield the differences from what our way of receiving expects; opens nothing."""
    yield from _method_problems(RECEIVING_METHODS)
    yield from _coroutine_problems(RECEIVING_COROUTINES)
    if transport.KafkaSSLTransport.__mro__[1] is not transport.KafkaTCPTransport:
        yield "KafkaSSLTransport is no KafkaTCPTransport"
    yield from _attribute_problems(RECEIVING_ATTRIBUTES)


def _attribute_problems(table: Mapping[type, tuple[str, ...]]) -> Iterator[str]:
    for kind, names in table.items():
        if kind not in SAMPLES:
            continue
        try:
            sample = SAMPLES[kind]()
        except TypeError as error:
            yield str(error)
            continue
        for name in names:
            if not hasattr(sample, name):
                yield f"{kind.__name__} has no {name}"


def _method_problems(
    methods: tuple[tuple[type, str, tuple[str, ...]], ...],
) -> Iterator[str]:
    for owner, name, parameters in methods:
        method = getattr(owner, name, None)
        if method is None:
            yield f"{owner.__name__}.{name} is gone"
            continue
        found = tuple(inspect.signature(method).parameters)
        if found[: len(parameters)] != parameters:
            yield f"{owner.__name__}.{name} takes {', '.join(found)}"


def _coroutine_problems(coroutines: tuple[tuple[type, str], ...]) -> Iterator[str]:
    for owner, name in coroutines:
        if not inspect.iscoroutinefunction(getattr(owner, name, None)):
            yield f"{owner.__name__}.{name} is not a coroutine"
