"""What the cluster says of groups, where it does not say everything."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from attrs import define, field
from kafka import TopicPartition
from kafka.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    GroupAuthorizationFailedError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    NotCoordinatorError,
)
from kafka.structs import OffsetAndMetadata

from safeconsumer.group import survey
from safeconsumer.group.facts import UNKNOWN
from safeconsumer.group.survey import (
    ends_of,
    facts_of_one,
    listed_groups,
    survey_of,
    with_lags,
    written_since,
)

TP, GONE, NEW = (TopicPartition(name, 0) for name in ("t", "gone", "new"))
# Which broker leads each partition of a topic; -1 for none.
_LEADERS = 2, 1, -1
_OF_AWAY, _OF_ALL = 1, 2
AWAY, LEADERLESS = TopicPartition("t", _OF_AWAY), TopicPartition("t", 2)


@define
class Cluster:
    """Stands in for both clients; it refuses what it is told to refuse."""

    states: Mapping[str, str] = field(factory=dict)
    offsets: Mapping[str, Mapping[TopicPartition, int]] = field(factory=dict)
    refused: Mapping[str, KafkaError] = field(factory=dict)
    errors: list[type[KafkaError]] = field(factory=list)
    away: KafkaError | None = None
    asked: list[tuple[str, ...]] = field(factory=list)

    def describe_cluster(self) -> dict[str, Any]:
        fenced = {"broker_id": 3, "is_fenced": True}
        return {"brokers": [{"broker_id": _OF_AWAY}, {"broker_id": 2}, fenced]}

    def list_groups(self, broker_ids: Sequence[int]) -> list[dict[str, Any]]:
        assert broker_ids != [3]
        if broker_ids == [_OF_AWAY]:
            if self.away:
                raise self.away
            return []
        return [{"group_id": name, "protocol_type": "consumer"} for name in self.states]

    def describe_groups(
        self, names: Sequence[str], group_coordinator_id: int
    ) -> dict[str, dict[str, Any]]:
        assert group_coordinator_id == _OF_ALL
        said = {"error": str(self.errors.pop()())} if self.errors else {}
        return {
            name: {"group_state": self.states.get(name, "Dead"), "members": (), **said}
            for name in names
        }

    def list_group_offsets(self, names: Sequence[str]) -> dict[str, Any]:
        self.asked.append(tuple(names))
        for name in names:
            if name in self.refused:
                raise self.refused[name]
        return {
            name: {
                tp: OffsetAndMetadata(at, "", -1)
                for tp, at in self.offsets.get(name, {}).items()
            }
            for name in names
        }

    def describe_topics(self, names: Sequence[str]) -> list[dict[str, Any]]:
        return [
            {
                "name": one,
                "partitions": [
                    {"partition_index": number, "leader_id": leader}
                    for number, leader in enumerate(_LEADERS)
                ],
                "error_code": 3 * (one == "gone"),
            }
            for one in names
        ]

    def end_offsets(self, tps: Sequence[TopicPartition], **_: Any) -> dict[Any, int]:  # noqa: ANN401 - a limit
        if self.away and any(tp.partition == _OF_AWAY for tp in tps):
            raise self.away
        assert not {GONE, LEADERLESS}.intersection(tps)
        return dict.fromkeys(tps, 9)

    def offsets_for_times(
        self,
        moments: Mapping[TopicPartition, int],
        **limit: Any,  # noqa: ANN401 - a limit
    ) -> dict[TopicPartition, Any]:
        self.end_offsets([*moments], **limit)
        return {tp: SimpleNamespace(offset=at // 1000) for tp, at in moments.items()}


@pytest.fixture(autouse=True)
def coordinated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let one broker coordinate all groups."""

    def coordinators(_: Cluster, names: Sequence[str]) -> dict[str, int]:
        return dict.fromkeys(names, _OF_ALL)

    monkeypatch.setattr(survey, "coordinators", coordinators)
    monkeypatch.setattr(survey, "forget", lambda *_: None)


def surveyed(cluster: Any, *groups: str) -> survey.Survey:  # noqa: ANN401 - stands in
    return survey_of(cluster, groups)


def test_one_group_that_cannot_be_asked_about_leaves_the_others() -> None:
    """Its coordinator is not there; it ended the survey of all groups, each time."""
    names = [f"g{number}" for number in range(8)]
    refused = {"g5": CoordinatorNotAvailableError("its coordinator is not there")}
    offsets = {name: {TP: 5} for name in names}
    cluster = Cluster(dict.fromkeys(names, "Stable"), offsets, refused)
    found = surveyed(cluster, *names)
    assert [name for name, one in found.facts.items() if one.has_committed] == [
        name for name in names if name != "g5"
    ]
    assert found.facts["g0"].committed == {TP: 5}
    (said,) = found.unread.pop("g5")  # type: ignore[attr-defined]  # a dict
    assert "its coordinator is not there" in said
    assert (found.unread, len(cluster.asked)) == ({}, 7)


def test_a_group_that_nobody_lists_is_not_there() -> None:
    """Brokers of 4.0 call that an error; one that is listed is of KIP-848."""
    cluster = Cluster({"new": "Dead"}, errors=[KafkaError])
    found = surveyed(cluster, "typo", "new")
    assert [one.state for one in found.facts.values()] == [UNKNOWN, "Dead"]
    assert found.unread == {}
    assert [one.is_known for one in found.facts.values()] == [True, False]


def test_a_coordinator_that_is_not_ready_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error stood in the answer, and a command ended with it."""
    errors: list[type[KafkaError]] = [
        NotCoordinatorError,
        CoordinatorLoadInProgressError,
    ]
    clock = SimpleNamespace(monotonic=lambda: 0.0, sleep=lambda _: None)
    monkeypatch.setattr(survey, "time", clock)
    cluster: Any = Cluster({"g": "Empty"}, errors=errors)
    assert facts_of_one(cluster, "g").state == "Empty"
    assert errors == []
    refusing: Any = Cluster({"g": "Empty"}, {}, {"g": GroupAuthorizationFailedError()})
    with pytest.raises(GroupAuthorizationFailedError):
        facts_of_one(refusing, "g")


@pytest.mark.parametrize("error", [None, KafkaConnectionError(), KafkaTimeoutError()])
def test_lags_are_of_partitions_that_answer(error: KafkaError | None) -> None:
    """One broker of two that was down ended every command, and all the console shows."""
    committed = dict.fromkeys((TP, AWAY, GONE, LEADERLESS), 5)
    cluster: Any = Cluster({"a": "Empty", "b": "Empty"}, {"a": committed}, away=error)
    there = {TP: 4} if error else {TP: 4, AWAY: 4}
    found = with_lags(surveyed(cluster, "a", "b"), ["a"], cluster, cluster)
    assert found.lags == {"a": there}
    moments = dict.fromkeys(committed, 5.0)
    assert written_since(moments, cluster, cluster) == there


def test_groups_are_listed_by_the_brokers_that_answer() -> None:
    """One that was down hid all groups; the rest is named as not known."""
    cluster: Any = Cluster({"a": "Empty"})
    assert listed_groups(cluster) == (["a"], {})
    cluster.away = KafkaConnectionError("x")
    groups, away = listed_groups(cluster)
    assert (groups, away) == (["a"], {_OF_AWAY: cluster.away})
    (unread,) = survey.Survey(away=away).unlisted
    assert unread == "the groups of broker 1 are not known: KafkaConnectionError: x"
    cluster.away = GroupAuthorizationFailedError()
    with pytest.raises(GroupAuthorizationFailedError):
        listed_groups(cluster)


def test_the_ends_of_control_topics_are_needed() -> None:
    """Of those that are there."""
    cluster: Any = Cluster(away=KafkaTimeoutError())
    assert ends_of([NEW, GONE], cluster, cluster) == {NEW: 9}
    with pytest.raises(KafkaTimeoutError):
        ends_of([NEW, AWAY], cluster, cluster)
