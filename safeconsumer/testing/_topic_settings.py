"""Answers requests about topics' settings and ACLs; the embedded broker obeys neither."""

from collections.abc import Mapping, Sequence

from safeconsumer.testing import _apis
from safeconsumer.testing._wire import Header, Reader, Writer

# Nothing is deleted by age.
_DEFAULTS: Mapping[str, str] = {"cleanup.policy": "delete", "retention.ms": "-1"}
_TOPIC = 2
_GIVEN, _DEFAULT = 1, 5  # where a setting is from: the topic, Kafka's own
_Asked = tuple[int, str, Sequence[str] | None]


class TopicSettings:
    """
    The settings that topics were created with, and the answers about them.

    Used by one thread.
    """

    def __init__(self) -> None:
        self.given: dict[str, Mapping[str, str]] = {}

    def answer(self, header: Header, message: bytes, error: int) -> bytes | None:
        """Write the body of an answer, or a refusal; None for other requests."""
        if header.api_key == _apis.API_KEYS["DescribeAcls"]:
            return _no_acls(error or _apis.SECURITY_DISABLED)
        if header.api_key != _apis.API_KEYS["DescribeConfigs"]:
            return None
        reader = Reader(message, header.body_at)
        asked = reader.array(lambda: _read(reader))
        body = Writer().int32(0).int32(len(asked))
        for one in asked:
            self._write(body, header.version, one, error)
        return body.done()

    def _write(self, body: Writer, version: int, asked: _Asked, error: int) -> None:
        kind, name, wanted = asked
        given = self.given.get(name) if kind == _TOPIC else {}
        if given is None:
            error = error or _apis.UNKNOWN_TOPIC_OR_PARTITION
        every = {**_DEFAULTS, **(given or {})} if kind == _TOPIC and not error else {}
        shown = {key: every[key] for key in every if wanted is None or key in wanted}
        body.int16(error).string(None).int8(kind).string(name).int32(len(shown))
        for key, value in shown.items():
            body.string(key).string(value).int8(0)
            is_given = key in (given or {})
            if version == 0:
                body.int8(not is_given).int8(0)
            else:
                body.int8(_GIVEN if is_given else _DEFAULT).int8(0).int32(0)


def _read(reader: Reader) -> _Asked:
    kind, name, count = reader.int8(), reader.string(), reader.int32()
    wanted = None if count < 0 else [reader.string() for _ in range(count)]
    return kind, name, wanted


def _no_acls(error: int) -> bytes:
    return Writer().int32(0).int16(error).string(None).int32(0).done()
