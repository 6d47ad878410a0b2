"""Makes responses as a broker writes them, and parsers that read these responses."""

from typing import Any

from attrs import frozen
from kafka.protocol.consumer import (
    FetchRequest,
    FetchResponse,
    HeartbeatRequest,
    HeartbeatResponse,
)
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse
from kafka.protocol.parser import KafkaProtocol
from kafka.protocol.sasl import SaslBytesRequest

from safeconsumer._kafka.decoding.frames import FrameParser

_Topic = FetchResponse.FetchableTopicResponse
_Partition = _Topic.PartitionData
_Api = ApiVersionsResponse.ApiVersion


@frozen
class Exchange:
    """A request and the bytes of its response."""

    request: Any
    answer: bytes


def requests_of(exchanges):
    return [one.request for one in exchanges if one.request is not None]


def written(exchanges):
    return b"".join(one.answer for one in exchanges)


def heartbeat(number, error=0):
    response = HeartbeatResponse(throttle_time_ms=0, error_code=error, version=4)
    request = HeartbeatRequest(
        group_id="g", generation_id=1, member_id="m", version=4, group_instance_id=None
    )
    return Exchange(request, _encoded(response, number))


def api_versions(number, error=0):
    keys = [_Api(api_key=1, min_version=0, max_version=12)]
    response = ApiVersionsResponse(error_code=error, api_keys=keys, version=0)
    return Exchange(ApiVersionsRequest(version=0), _encoded(response, number))


def fetch(number, *records):
    partitions = [
        _Partition(
            partition_index=index,
            error_code=0,
            high_watermark=7,
            last_stable_offset=7,
            log_start_offset=0,
            aborted_transactions=[],
            preferred_read_replica=-1,
            records=data,
        )
        for index, data in enumerate(records)
    ]
    response = FetchResponse(
        throttle_time_ms=0,
        error_code=0,
        session_id=1,
        responses=[_Topic(topic="orders", partitions=partitions)],
        version=11,
    )
    return Exchange(FetchRequest(version=11), _encoded(response, number))


def token(data):
    """Return an old authentication request, and its response, which has no header."""
    return Exchange(SaslBytesRequest(b"t"), len(data).to_bytes(4, "big") + data)


def _encoded(response, number):
    response.with_header(correlation_id=number)
    return bytes(response.encode(header=True, framed=True))


def stock(requests, **config):
    """Return upstream's parser after it has sent these requests."""
    parser = KafkaProtocol(client_id="c", **config)
    for request in requests:
        parser.send_request(request)
    return parser


def ours(requests, **config):
    """Return our parser, converted from upstream's parser as the transport converts it."""
    parser = stock(requests, **config)
    parser.__class__ = FrameParser
    parser.prepare()
    return parser


def handed(parser, chunks):
    """Pass these chunks to a parser, and return its responses and the final error."""
    return _collected(parser.receive_bytes(chunk) for chunk in chunks)


def received(parser, chunks):
    """Write these bytes into our parser's buffer, as a socket would."""
    return _collected(_placed(parser, chunks))


def _placed(parser, chunks):
    for chunk in chunks:
        left = memoryview(chunk)
        while left:
            room = parser.room()
            count = min(len(room), len(left))
            room[:count] = left[:count]
            left = left[count:]
            yield parser.receive_bytes(room[:count])


def _collected(answers):
    found = []
    try:
        for some in answers:
            found += [(number, _plain(response)) for number, response in some]
    except Exception as error:  # noqa: BLE001 - the test compares the error
        found.append((type(error), str(error)))
    return found


def _plain(response):
    return getattr(response, "auth_bytes", None) or str(response)
