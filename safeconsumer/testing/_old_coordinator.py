# ruff: noqa: PLR2004  the numbers compared are versions of Kafka's wire format
"""The group requests of the wire, answered from the kit's own groups."""

from collections import defaultdict
from collections.abc import Callable

from safeconsumer.testing import _apis
from safeconsumer.testing._group import Group, GroupState
from safeconsumer.testing._members import JoinAnswer, JoinRequest, Schedule
from safeconsumer.testing._wire import Header, Reader, Writer

Reply = Callable[[bytes], None]


class Coordinator:
    """
    Answers what members and admins ask about groups, and judges OffsetCommit.

    It is used by one thread. The caller knows which broker coordinates a group.
    """

    def __init__(self, schedule: Schedule) -> None:
        self.groups: defaultdict[str, Group] = defaultdict(lambda: Group(schedule))
        self._committed: defaultdict[str, set[tuple[str, int]]] = defaultdict(set)

    def listed(self, version: int, is_here: Callable[[str], bool]) -> bytes:
        """Write the body of a ListGroups: the groups that this broker coordinates."""
        names = [name for name in self.groups if is_here(name)]
        answer = _throttle(version >= 1).int16(_apis.NONE).int32(len(names))
        for name in names:
            answer.string(name).string(_PROTOCOL)
        return answer.done()

    def spelled_out(self, header: Header, message: bytes) -> bytes:
        """
        Return an OffsetFetch for all partitions as one that names them.

        The mock answers only what is named.
        """
        if header.api_key != _apis.API_KEYS["OffsetFetch"]:
            return message
        reader = Reader(message, header.body_at)
        group = reader.string()
        if reader.int32() >= 0:
            return message
        topics: defaultdict[str, list[int]] = defaultdict(list)
        for topic, number in sorted(self._committed[group]):
            topics[topic].append(number)
        body = Writer().string(group).int32(len(topics))
        for topic, numbers in topics.items():
            body.string(topic).int32(len(numbers))
            for number in numbers:
                body.int32(number)
        return message[: header.body_at] + body.done()

    def handle(self, header: Header, message: bytes, reply: Reply) -> bool:
        """
        Answer the request if it is a group's; False leaves it to the real mock.

        ``reply`` gets the body of the answer, without the correlation id.
        """
        handler = _HANDLERS.get(header.api_key)
        if handler is None:
            return False
        reader = Reader(message, header.body_at)
        return handler(self, header, reader, reply)

    def _join(self, header: Header, reader: Reader, reply: Reply) -> bool:
        group = reader.string()
        request = _read_join(header, reader)
        self.groups[group].join(
            request, lambda answer: reply(_join_body(header.version, answer))
        )
        return True

    def _sync(self, header: Header, reader: Reader, reply: Reply) -> bool:
        group, generation = reader.string(), reader.int32()
        member_id = reader.string()
        if header.version >= 3:
            reader.nullable_string()
        assignments = dict(reader.array(lambda: (reader.string(), reader.blob())))
        self.groups[group].sync(
            member_id,
            generation,
            assignments,
            lambda error, assignment: reply(
                _throttle(header.version >= 1).int16(error).blob(assignment).done()
            ),
        )
        return True

    def _heartbeat(self, header: Header, reader: Reader, reply: Reply) -> bool:
        group, generation, member_id = reader.string(), reader.int32(), reader.string()
        error = self.groups[group].heartbeat(member_id, generation)
        reply(_throttle(header.version >= 1).int16(error).done())
        return True

    def _leave(self, header: Header, reader: Reader, reply: Reply) -> bool:
        group = self.groups[reader.string()]
        answer = _throttle(header.version >= 1)
        if header.version < 3:
            reply(answer.int16(group.leave(reader.string())).done())
            return True
        leaving = reader.array(lambda: (reader.string(), reader.nullable_string()))
        answer.int16(_apis.NONE).int32(len(leaving))
        for member_id, instance_id in leaving:
            error = group.leave(member_id, instance_id)
            answer.string(member_id).string(instance_id).int16(error)
        reply(answer.done())
        return True

    def _commit(self, header: Header, reader: Reader, reply: Reply) -> bool:
        if header.version < 1:
            return False  # this request has no generation
        group, generation, member_id = reader.string(), reader.int32(), reader.string()
        error = self.groups[group].commit(member_id, generation)
        if not error:
            self._committed[group].update(read_committed(header.version, reader))
            return False  # the mock knows no such group and stores any offset
        reply(commit_body(header.version, reader, error))
        return True

    def _describe(self, header: Header, reader: Reader, reply: Reply) -> bool:
        names = reader.array(reader.string)
        answer = _throttle(header.version >= 1).int32(len(names))
        for name in names:
            self._write_group(answer, header.version, name)
        reply(answer.done())
        return True

    def _write_group(self, answer: Writer, version: int, name: str) -> None:
        group = self.groups.get(name)
        answer.int16(_apis.NONE).string(name)
        answer.string("Dead" if group is None else _STATES[group.state])
        members = () if group is None else group.described()
        answer.string(_PROTOCOL if group else "").string("").int32(len(members))
        for member_id, request, assignment in members:
            answer.string(member_id)
            if version >= 4:
                answer.string(request.instance_id)
            answer.string(request.client_id).string("/127.0.0.1")
            answer.blob(next(iter(request.protocols.values()), b"")).blob(assignment)
        if version >= 3:
            answer.int32(_NOT_ASKED)


_PROTOCOL = "consumer"
_STATES = {
    GroupState.EMPTY: "Empty",
    GroupState.PREPARING: "PreparingRebalance",
    GroupState.COMPLETING: "CompletingRebalance",
    GroupState.STABLE: "Stable",
}
_NOT_ASKED = -(2**31)  # Kafka's value for operations that were not requested

_HANDLERS: dict[int, Callable[[Coordinator, Header, Reader, Reply], bool]] = {
    _apis.API_KEYS["JoinGroup"]: Coordinator._join,  # noqa: SLF001  its own table
    _apis.API_KEYS["SyncGroup"]: Coordinator._sync,  # noqa: SLF001  its own table
    _apis.API_KEYS["Heartbeat"]: Coordinator._heartbeat,  # noqa: SLF001  its own
    _apis.API_KEYS["LeaveGroup"]: Coordinator._leave,  # noqa: SLF001  its own table
    _apis.API_KEYS["OffsetCommit"]: Coordinator._commit,  # noqa: SLF001  its own
    _apis.API_KEYS["DescribeGroups"]: Coordinator._describe,  # noqa: SLF001  its own
}
_OF_ONE_GROUP = _HANDLERS.keys() - {_apis.API_KEYS["DescribeGroups"]}


def group_of(header: Header, message: bytes) -> str | None:
    """Return the group of a request, or None if it is not one group's request."""
    if header.api_key not in _OF_ONE_GROUP:
        return None
    return Reader(message, header.body_at).string()


def refusal(header: Header, message: bytes, error: int) -> bytes | None:
    """Write the body which refuses a group's request; None for other requests."""
    version = header.version
    match _apis.api_name(header.api_key):
        case "JoinGroup":
            return _join_body(version, JoinAnswer(error=error))
        case "SyncGroup":
            return _throttle(version >= 1).int16(error).blob(b"").done()
        case "Heartbeat":
            return _throttle(version >= 1).int16(error).done()
        case "LeaveGroup":
            answer = _throttle(version >= 1).int16(error)
            is_list = version >= 3
            return answer.int32(0).done() if is_list else answer.done()
        case "OffsetCommit" if version >= 1:
            reader = Reader(message, header.body_at)
            reader.string(), reader.int32(), reader.string()
            return commit_body(version, reader, error)
    return None


def commit_body(version: int, reader: Reader, error: int) -> bytes:
    """Make the body with one error for every partition of an OffsetCommit."""
    topics = _read_commit(version, reader)
    answer = _throttle(version >= 3).int32(len(topics))
    for topic, partitions in topics:
        answer.string(topic).int32(len(partitions))
        for partition in partitions:
            answer.int32(partition).int16(error)
    return answer.done()


def read_committed(version: int, reader: Reader) -> set[tuple[str, int]]:
    """Return what an OffsetCommit is about, read up to its member id."""
    return {
        (topic, number)
        for topic, numbers in _read_commit(version, reader)
        for number in numbers
    }


def _read_commit(version: int, reader: Reader) -> list[tuple[str, list[int]]]:
    if version >= 7:
        reader.nullable_string()
    if 2 <= version <= 4:
        reader.int64()
    return reader.array(
        lambda: (
            reader.string(),
            reader.array(lambda: _read_partition(version, reader)),
        )
    )


def _read_partition(version: int, reader: Reader) -> int:
    partition = reader.int32()
    reader.int64()
    if version >= 6:
        reader.int32()
    if version == 1:
        reader.int64()
    reader.nullable_string()
    return partition


def _read_join(header: Header, reader: Reader) -> JoinRequest:
    session = rebalance = reader.int32() / 1000
    if header.version >= 1:
        rebalance = reader.int32() / 1000
    member_id = reader.string()
    instance_id = None
    if header.version >= 5:
        instance_id = reader.nullable_string()
    reader.string()  # the protocol's type: always "consumer"
    return JoinRequest(
        member_id=member_id,
        client_id=header.client_id or "unknown",
        instance_id=instance_id,
        session_timeout=session,
        rebalance_timeout=rebalance,
        protocols=dict(reader.array(lambda: (reader.string(), reader.blob()))),
        is_id_required=header.version >= 4,
    )


def _join_body(version: int, answer: JoinAnswer) -> bytes:
    body = _throttle(version >= 2).int16(answer.error)
    body.int32(answer.generation).string(answer.protocol)
    body.string(answer.leader).string(answer.member_id).int32(len(answer.members))
    for member_id, instance_id, metadata in answer.members:
        body.string(member_id)
        if version >= 5:
            body.string(instance_id)
        body.blob(metadata)
    return body.done()


def _throttle(is_there: bool) -> Writer:  # noqa: FBT001  the one thing it decides
    return Writer().int32(0) if is_there else Writer()
