"""Makes Fetch responses, and puts them into the buffer in place of the IO thread."""

from kafka.consumer.fetcher import CompletedFetch
from kafka.protocol.consumer import FetchResponse
from kafka.record.memory_records import MemoryRecordsBuilder

from safeconsumer._kafka.pausing.stamps import Stamped
from safeconsumer._kafka.pausing.undelivered import OwnedPartitionState

PartitionData = FetchResponse.FetchableTopicResponse.PartitionData

# The version of the Fetch responses.
VERSION = 12


def batch(first, count, *, value=b"value"):
    builder = MemoryRecordsBuilder(
        magic=2, compression_type=0, batch_size=2**30, offset=first
    )
    for _ in range(count):
        builder.append(timestamp=1, key=None, value=value, headers=[])
    builder.close()
    return bytes(builder.buffer())


def corrupted(data):
    """Return the batch with a wrong checksum."""
    return data[:-1] + bytes([data[-1] ^ 0xFF])


def answer(consumer, tp, offset, data, *, error=0):
    """Put a Fetch response into the buffer, as if the current ownership had requested it."""
    fetcher = consumer._fetcher
    state = consumer._subscription.assignment.get(tp)
    is_ours = isinstance(state, OwnedPartitionState)
    asked = Stamped.of(offset, state) if is_ours else offset
    fetcher._completed_fetches.append(
        CompletedFetch(
            tp,
            asked,
            VERSION,
            PartitionData(
                partition_index=tp.partition,
                error_code=error,
                high_watermark=10**6,
                records=data,
            ),
            None,
        )
    )


def assigned(consumer, *partitions):
    """Assign partitions at offset 0, so that the consumer needs no broker."""
    consumer.assign(list(partitions))
    for tp in partitions:
        if not consumer._subscription.assignment[tp].has_valid_position:
            consumer.seek(tp, 0)


def offsets(polled):
    return {tp.partition: [one.offset for one in ones] for tp, ones in polled.items()}
