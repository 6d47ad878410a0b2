"""Tests the request that describes KIP-848 groups, which kafka-python lacks."""

from types import SimpleNamespace

import pytest

from safeconsumer._kafka.of_group.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    describe_consumer_groups,
)

# Apache Kafka 4.1's responses about an unknown group, a group of kafka-python's consumer,
# and a group of confluent-kafka.
ANSWER = bytes.fromhex(
    "000000000300451847726f7570206e6f73756368206e6f7420666f756e642e076e6f737563680100"
    "0000000000000001018000000000000000026707537461626c65000000020000000208756e69666f"
    "726d031737676a7a7a3855575275756a38467351505f67326841000000000002046f6c640b2f3132"
    "372e302e302e3102027401029672d6b38e1b4bdbb01a6bc27e57b6b3027402000000020000029672"
    "d6b38e1b4bdbb01a6bc27e57b6b3027402000000020000000017684d39353159427252382b695164"
    "49302f716a584b41000000000002046e65770b2f3132372e302e302e3102027401029672d6b38e1b"
    "4bdbb01a6bc27e57b6b302740300000000000000010000029672d6b38e1b4bdbb01a6bc27e57b6b3"
    "027403000000000000000100000100800000000000"
)
REFUSED = {
    "error_code": 30,
    "group_id": "secret",
    "group_state": "",
    "group_epoch": 0,
    "assignment_epoch": 0,
    "assignor_name": "",
    "members": [],
}


class Coordinator:
    """An admin client that returns a given response and records the requests."""

    def __init__(self, answer):
        self._answer, self.sent = answer, []
        self._manager = SimpleNamespace(run=self._run, send=self._send)

    def _run(self, ask, *arguments):
        asking = ask(*arguments)
        with pytest.raises(StopIteration) as ended:
            asking.send(None)
        return ended.value.value

    async def _send(self, request, node_id):
        self.sent.append((node_id, request))
        return self._answer


def test_response_of_apache_kafka_is_decoded():
    admin = Coordinator(ConsumerGroupDescribeResponse.decode(ANSWER, version=1))
    found = describe_consumer_groups(admin, ["g", "nosuch"], 7)
    assert list(found) == ["g"]
    assert (found["g"]["group_state"], found["g"]["error"]) == ("Stable", None)
    owned = {
        one["client_id"]: one["member_assignment"]["assigned_partitions"]
        for one in found["g"]["members"]
    }
    assert owned == {
        "old": [{"topic": "t", "partitions": [2]}],
        "new": [{"topic": "t", "partitions": [0, 1]}],
    }
    assert {one["member_epoch"] for one in found["g"]["members"]} == {2}
    ((node, request),) = admin.sent
    assert (node, request.group_ids) == (7, ["g", "nosuch"])


def test_error_of_a_group_is_reported_with_that_group():
    answer = ConsumerGroupDescribeResponse(
        groups=[ConsumerGroupDescribeResponse.DescribedGroup(**REFUSED, version=1)],
        version=1,
    )
    found = describe_consumer_groups(Coordinator(answer), ["secret"], 7)
    assert "GroupAuthorizationFailed" in found["secret"]["error"]


@pytest.mark.parametrize("version", [0, 1])
def test_request_has_kafkas_api_key_and_versions(version):
    """The API key is 69, and both versions are flexible."""
    request = ConsumerGroupDescribeRequest(
        group_ids=["g"], include_authorized_operations=False, version=version
    )
    assert ConsumerGroupDescribeRequest.API_KEY == 69
    assert request.encode() == b"\x02\x02g\x00\x00"
