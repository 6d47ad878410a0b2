"""Answers as a broker writes them, and parsers that wait for them."""

from collections.abc import Iterable, Sequence
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
    """A request, and the bytes that answer it; the first of a connection has number 1."""

    request: Any
    answer: bytes


def heartbeat(number: int, error: int = 0) -> Exchange:
    response = HeartbeatResponse(throttle_time_ms=0, error_code=error, version=4)
    request = HeartbeatRequest(
        group_id="g", generation_id=1, member_id="m", version=4, group_instance_id=None
    )
    return Exchange(request, _written(response, number))


def api_versions(number: int, error: int = 0) -> Exchange:
    keys = [_Api(api_key=1, min_version=0, max_version=12)]
    response = ApiVersionsResponse(error_code=error, api_keys=keys, version=0)
    return Exchange(ApiVersionsRequest(version=0), _written(response, number))


def fetch(number: int, *records: bytes) -> Exchange:
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
    return Exchange(FetchRequest(version=11), _written(response, number))


def token(data: bytes) -> Exchange:
    """Answer an authentication of old: a length and bytes, no header."""
    return Exchange(SaslBytesRequest(b"t"), len(data).to_bytes(4, "big") + data)


def _written(response: Any, number: int) -> bytes:  # noqa: ANN401 - upstream's class
    response.with_header(correlation_id=number)
    return bytes(response.encode(header=True, framed=True))


def stock(requests: Iterable[Any], **config: object) -> KafkaProtocol:
    """Make upstream's parser, which has sent these."""
    parser = KafkaProtocol(client_id="c", **config)
    for request in requests:
        parser.send_request(request)
    return parser


def ours(requests: Iterable[Any], **config: object) -> FrameParser:
    """Make our parser, adopted as a transport does it."""
    parser: Any = stock(requests, **config)
    parser.__class__ = FrameParser
    parser.prepare()
    adopted: FrameParser = parser
    return adopted


def handed(parser: KafkaProtocol, chunks: Iterable[bytes]) -> list[object]:
    """Hand a parser these bytes; return what it answers, and the error that ends it."""
    return _told(parser.receive_bytes(chunk) for chunk in chunks)


def received(parser: FrameParser, chunks: Sequence[bytes]) -> list[object]:
    """Hand our parser these bytes where it wants them, as a socket would."""
    return _told(_placed(parser, chunks))


def _placed(parser: FrameParser, chunks: Sequence[bytes]) -> Iterable[list[Any]]:
    for chunk in chunks:
        left = memoryview(chunk)
        while left:
            room = parser.room()
            count = min(len(room), len(left))
            room[:count] = left[:count]
            left = left[count:]
            yield parser.receive_bytes(room[:count])


def _told(answers: Iterable[list[Any]]) -> list[object]:
    told: list[object] = []
    try:
        for some in answers:
            told += [(number, _plain(response)) for number, response in some]
    except Exception as error:  # noqa: BLE001 - compared
        told.append((type(error), str(error)))
    return told


def _plain(response: Any) -> object:  # noqa: ANN401 - upstream's class
    return getattr(response, "auth_bytes", None) or str(response)
