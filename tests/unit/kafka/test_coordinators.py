"""Tests requests about many groups together, with errors for some groups."""

from types import SimpleNamespace

import pytest
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.cluster import ClusterMetadata
from kafka.errors import CoordinatorLoadInProgressError, GroupAuthorizationFailedError
from kafka.protocol.broker_version_data import BrokerVersionData

from safeconsumer._kafka.of_group.coordinators import committed_offsets, coordinators

NAMES = ["a", "b", "c", "d"]
REFUSED = {"b": GroupAuthorizationFailedError, "d": CoordinatorLoadInProgressError}
T = TopicPartition("t", 0)

in_both = pytest.mark.parametrize("broker", [(2, 8), (4, 0)], ids=["old", "new"])


def admin_of(broker, answer):
    """Return an admin client of this broker version, and the requests that it sends."""

    def run(ask, *arguments):
        asking = ask(*arguments)
        with pytest.raises(StopIteration) as ended:
            asking.send(None)
        return ended.value.value

    async def send(request, node_id=None):
        sent.append((node_id, request))
        return answer(request)

    sent = []
    admin = KafkaAdminClient.__new__(KafkaAdminClient)
    admin._manager = SimpleNamespace(
        run=run,
        send=send,
        cluster=ClusterMetadata(),
        broker_version_data=BrokerVersionData(broker),
    )
    return admin, sent


def offsets(request):
    """Respond with the committed offset 7 of t for each group, or with the group's error."""
    partition = SimpleNamespace(
        partition_index=0,
        error_code=0,
        committed_offset=7,
        metadata="",
        committed_leader_epoch=-1,
    )
    topic = SimpleNamespace(name="t", partitions=[partition])

    def row(name, version):
        error = REFUSED.get(name)
        return SimpleNamespace(
            API_VERSION=version,
            error_code=error.errno if error else 0,
            topics=[] if error else [topic],
            **({"group_id": name} if version >= 8 else {}),
        )

    if request.groups:
        rows = [row(one.group_id, 8) for one in request.groups]
        return SimpleNamespace(API_VERSION=8, groups=rows)
    return row(request.group_id, 7)


def brokers(request):
    """Respond with broker 3 as the coordinator of each group, or with the group's error."""

    def row(name):
        error = REFUSED.get(name)
        code = error.errno if error else 0
        fields = {"error_code": code, "error_message": None, "host": "h", "port": 9}
        return SimpleNamespace(key=name, node_id=-1 if error else 3, **fields)

    if request.coordinator_keys:
        return SimpleNamespace(coordinators=list(map(row, request.coordinator_keys)))
    return row(request.key)


@in_both
def test_error_for_one_group_does_not_hide_the_offsets_of_other_groups(broker):
    admin, sent = admin_of(broker, offsets)
    found, refused = committed_offsets(admin, 3, NAMES)
    assert {name: one[T].offset for name, one in found.items()} == {"a": 7, "c": 7}
    assert {name: type(one) for name, one in refused.items()} == REFUSED
    assert {node for node, _ in sent} == {3}
    assert len(sent) == (1 if broker >= (3, 0) else len(NAMES))


@in_both
def test_error_for_one_group_does_not_hide_the_coordinators_of_other_groups(broker):
    """The client sends the request again only for groups whose request failed."""
    admin, sent = admin_of(broker, brokers)
    found, refused = coordinators(admin, NAMES)
    assert found == {"a": 3, "c": 3}
    assert {name: type(one) for name, one in refused.items()} == REFUSED
    assert len(sent) == (1 if broker >= (3, 0) else len(NAMES))
    sent.clear()
    assert coordinators(admin, ["a", "c"]) == (found, {})
    assert not sent
    coordinators(admin, NAMES)
    assert len(sent) == (1 if broker >= (3, 0) else len(REFUSED))
