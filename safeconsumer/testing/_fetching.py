"""Answers Fetch requests, with long polls, fetch sessions (KIP-227) and isolation levels."""

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from typing import Any

from attrs import define, field, frozen

from safeconsumer.testing import _codes
from safeconsumer.testing._codes import RefusedError
from safeconsumer.testing._log import Log
from safeconsumer.testing._members import Schedule
from safeconsumer.testing._protocol import Exchange, Fields
from safeconsumer.testing._topics import Topics

READ_COMMITTED = 1  # Kafka's value for this isolation level

_BY_ID = 13  # from this version on, topics are identified by id
_NO_SESSION, _FIRST_EPOCH = -1, 0
_OF_SESSIONS = {_codes.FETCH_SESSION_ID_NOT_FOUND, _codes.INVALID_FETCH_SESSION_EPOCH}
_MOST_SESSIONS = 1000  # Kafka's default of max.incremental.fetch.session.cache.slots

_NOTHING = {
    "diverging_epoch": None,
    "high_watermark": -1,
    "aborted_transactions": None,
    "records": b"",
}

_Key = tuple[str, Any, int]  # topic (empty if unknown), topic id, partition


@frozen(kw_only=True)
class _Asked:
    """The fields of a Fetch request for one partition."""

    offset: int
    room: int
    epoch: int
    last_epoch: int


@define
class _Session:
    """A fetch session: its partitions, the state last sent for each, and the next epoch."""

    number: int
    epoch: int
    asked: dict[_Key, _Asked]
    sent: dict[_Key, tuple[int, ...]] = field(factory=dict)


class Fetches:
    """Answers Fetch requests immediately or when records arrive. Sessions are per broker."""

    def __init__(self, topics: Topics, call_later: Schedule) -> None:
        self._topics, self._call_later = topics, call_later
        self._sessions: dict[tuple[int, int], _Session] = {}
        self._last_session = 0
        self._waiting: dict[Exchange, Callable[[], None]] = {}
        self.handlers: Mapping[str, Callable[[Exchange], None]] = {"Fetch": self._fetch}

    def asked(self, exchange: Exchange) -> tuple[tuple[str, int], ...]:
        """Return the partitions in a Fetch request and in its session, sorted."""
        body = exchange.body
        session = self._sessions.get((exchange.node, body.session_id))
        # A request with the first epoch ends the session that it names, and lists all
        # partitions.
        is_whole = body.session_epoch in {_NO_SESSION, _FIRST_EPOCH}
        before = {} if session is None or is_whole else session.asked
        asked = self._updated(exchange, before)
        return _shared(tuple(sorted((key[0], key[2]) for key in asked if key[0])))

    def forget_sessions(self, node: int) -> None:
        """Drop the fetch sessions of a stopped broker."""
        for key in tuple(self._sessions):
            if key[0] == node:
                del self._sessions[key]

    def answer_waiting(self) -> None:
        """Answer the waiting requests that now have enough records or an error."""
        for try_answer in tuple(self._waiting.values()):
            try_answer()

    # One request

    def _fetch(self, exchange: Exchange) -> None:
        session = self._session(exchange)
        asked = self._updated(exchange, {}) if session is None else session.asked
        wanted = exchange.body.min_bytes if exchange.body.max_wait_ms > 0 else 0

        def answer(least: int) -> bool:
            parts, size, is_due = self._read(exchange, asked)
            if size < least and not is_due:
                return False
            self._reply(exchange, session, parts)
            return True

        if not answer(wanted):
            self._wait(exchange, answer)

    def _wait(self, exchange: Exchange, answer: Callable[[int], bool]) -> None:
        def try_answer() -> None:
            if answer(exchange.body.min_bytes):
                del self._waiting[exchange]
                timer.cancel()

        def give_up() -> None:
            if self._waiting.pop(exchange, None) is not None:
                answer(0)

        self._waiting[exchange] = try_answer
        timer = self._call_later(exchange.body.max_wait_ms / 1000, give_up)

    def _read(
        self, exchange: Exchange, asked: Mapping[_Key, _Asked]
    ) -> tuple[dict[_Key, dict[str, Any]], int, bool]:
        """Return the partitions' answers, their total size, and whether to answer now."""
        parts, size, is_due = {}, 0, not asked
        for key, one in asked.items():
            room = max(0, min(one.room, exchange.body.max_bytes - size))
            part = partial(
                self._partition, exchange, key, one, room, at_least_one=not size
            )
            answer = {**_NOTHING, **exchange.outcome(part), "partition_index": key[2]}
            size += len(answer["records"])
            is_due = is_due or _is_about_position(answer)
            parts[key] = answer
        return parts, size, is_due

    def _partition(
        self,
        exchange: Exchange,
        key: _Key,
        one: _Asked,
        room: int,
        *,
        at_least_one: bool,
    ) -> Fields:
        topic, id_, number = key
        if id_ is not None and self._topics.get(None, id_) is None:
            raise RefusedError(_codes.UNKNOWN_TOPIC_ID)
        log = self._topics.led(exchange.node, topic, number, one.epoch)
        state = {
            "high_watermark": log.end,
            "last_stable_offset": log.stable_end,
            "log_start_offset": log.start,
        }
        if one.last_epoch >= 0:  # only since version 12, in Kafka 2.7 (KIP-595)
            diverging = log.diverging(one.offset, one.last_epoch)
            if diverging is not None:
                epoch, end = diverging
                return {
                    **state,
                    "diverging_epoch": {"epoch": epoch, "end_offset": end},
                }
        if not log.start <= one.offset <= log.end:
            raise RefusedError(_codes.OFFSET_OUT_OF_RANGE)
        is_committed = exchange.body.isolation_level == READ_COMMITTED
        end = log.stable_end if is_committed else log.end
        return {
            **state,
            "aborted_transactions": _aborted(log, one.offset) if is_committed else None,
            "records": log.read(one.offset, room, end, at_least_one=at_least_one),
        }

    def _reply(
        self,
        exchange: Exchange,
        session: _Session | None,
        parts: dict[_Key, dict[str, Any]],
    ) -> None:
        is_whole = exchange.body.session_epoch in {_NO_SESSION, _FIRST_EPOCH}
        if session is not None:
            parts = _changed(session, parts, is_whole=is_whole)
        session_id = 0 if session is None else session.number
        topics: dict[tuple[str, Any], list[dict[str, Any]]] = {}
        for (topic, id_, _), answer in parts.items():
            topics.setdefault((topic, id_), []).append(answer)
        name = "topic_id" if exchange.version >= _BY_ID else "topic"
        responses = [
            {name: id_ if name == "topic_id" else topic, "partitions": partitions}
            for (topic, id_), partitions in topics.items()
        ]
        exchange.reply(session_id=session_id, responses=responses)

    # Sessions

    def _session(self, exchange: Exchange) -> _Session | None:
        """Return the session that a request starts or continues."""
        body, node = exchange.body, exchange.node
        if exchange.error in _OF_SESSIONS:
            raise RefusedError(exchange.error)
        if body.session_epoch in {_NO_SESSION, _FIRST_EPOCH}:
            self._sessions.pop((node, body.session_id), None)
            is_wanted = body.session_epoch == _FIRST_EPOCH
            return self._new_session(exchange) if is_wanted else None
        session = self._sessions.get((node, body.session_id))
        if session is None:
            raise RefusedError(_codes.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != body.session_epoch:
            raise RefusedError(_codes.INVALID_FETCH_SESSION_EPOCH)
        session.epoch += 1
        session.asked = self._updated(exchange, session.asked)
        return session

    def _new_session(self, exchange: Exchange) -> _Session | None:
        asked = self._updated(exchange, {})
        if not asked:
            return None
        self._last_session += 1
        session = _Session(self._last_session, _FIRST_EPOCH + 1, asked)
        self._sessions[exchange.node, self._last_session] = session
        if len(self._sessions) > _MOST_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        return session

    def _updated(
        self, exchange: Exchange, before: Mapping[_Key, _Asked]
    ) -> dict[_Key, _Asked]:
        """Return the session's partitions after this request's additions and removals."""
        body = exchange.body
        forgotten = {
            self._key(exchange, topic, number)
            for topic in body.forgotten_topics_data
            for number in topic.partitions
        }
        asked = {key: one for key, one in before.items() if key not in forgotten}
        return asked | dict(self._partitions(exchange))

    def _partitions(self, exchange: Exchange) -> Iterator[tuple[_Key, _Asked]]:
        for topic in exchange.body.topics:
            for one in topic.partitions:
                key = self._key(exchange, topic, one.partition)
                yield (
                    key,
                    _Asked(
                        offset=one.fetch_offset,
                        room=one.partition_max_bytes,
                        epoch=one.current_leader_epoch,
                        last_epoch=one.last_fetched_epoch,
                    ),
                )

    def _key(self, exchange: Exchange, topic: Any, number: int) -> _Key:  # noqa: ANN401
        if exchange.version < _BY_ID:
            return topic.topic, None, number
        found = self._topics.get(None, topic.topic_id)
        return "" if found is None else found.name, topic.topic_id, number


@lru_cache(maxsize=100)
def _shared(partitions: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
    """Return an equal tuple from an earlier request, to save memory for repeated requests."""
    return partitions


def _is_about_position(answer: Mapping[str, Any]) -> bool:
    """Return whether an answer has an error or a diverging epoch instead of records."""
    return bool(answer["error_code"] or answer["diverging_epoch"])


def _aborted(log: Log, offset: int) -> list[dict[str, int]]:
    return [
        {"producer_id": one.producer_id, "first_offset": one.first}
        for one in log.aborted_since(offset)
    ]


def _changed(
    session: _Session, parts: Mapping[_Key, dict[str, Any]], *, is_whole: bool
) -> dict[_Key, dict[str, Any]]:
    """Return the changed answers; partitions with records move to the session's end."""
    changed = {}
    for key, answer in parts.items():
        state = (answer["high_watermark"], answer.get("log_start_offset", -1))
        is_new = is_whole or answer["records"] or _is_about_position(answer)
        if is_new or session.sent.get(key) != state:
            changed[key] = answer
        session.sent[key] = state
        if answer["records"] and key in session.asked:
            session.asked[key] = session.asked.pop(key)
    return changed
