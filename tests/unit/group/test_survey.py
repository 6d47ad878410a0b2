"""Tests requests to the cluster about groups with the old and the new protocol."""

from types import SimpleNamespace

import pytest
from kafka import TopicPartition
from kafka.errors import GroupAuthorizationFailedError, IncompatibleBrokerVersion

from safeconsumer.group import survey

DEAD = {
    "group_state": "Dead",
    "members": [],
    "error": "[Error 69] GroupIdNotFoundError: Group g is not a classic group.",
}
MEMBER = {
    "member_id": "m-1",
    "member_epoch": 5,
    "client_id": "m",
    "client_host": "/h",
    "member_assignment": {"assigned_partitions": [{"topic": "t", "partitions": [1]}]},
}


def group_by(monkeypatch, described, *, newer, listed=()):
    """Return the description of a group from the brokers' answers to both requests."""

    def ask(_admin, names, node):
        assert node == 3
        asked.append(tuple(names))
        if isinstance(newer, Exception):
            raise newer
        return newer

    asked = []
    monkeypatch.setattr(survey, "describe_consumer_groups", ask)
    monkeypatch.setattr(survey, "coordinators", lambda *_: ({"g": 3}, {}))
    monkeypatch.setattr(survey, "committed_offsets", lambda *_: ({"g": {}}, {}))
    monkeypatch.setattr(survey, "forget", lambda *_: None)
    admin = SimpleNamespace(
        describe_groups=lambda *_, **__: {"g": described},
        list_groups=lambda **_: [{"group_id": one} for one in listed],
    )
    return survey.facts_of_one(admin, "g"), asked


def test_group_of_the_newer_protocol_is_described(monkeypatch):
    newer = {"g": {"group_state": "Reconciling", "members": [MEMBER], "error": None}}
    facts, asked = group_by(monkeypatch, DEAD, newer=newer)
    assert asked == [("g",)]
    assert facts.state == "Reconciling"
    (member,) = facts.members
    assert (member.member_id, member.epoch) == ("m-1", 5)
    assert member.assigned == {TopicPartition("t", 1)}


def test_classic_group_is_queried_only_once(monkeypatch):
    stable = {"group_state": "Stable", "members": [], "error": None}
    facts, asked = group_by(monkeypatch, stable, newer={})
    assert (facts.state, asked) == ("Stable", [])


def test_group_that_neither_protocol_describes_is_reported_as_dead(monkeypatch):
    facts, _ = group_by(monkeypatch, DEAD, newer={}, listed=["g"])
    assert (facts.state, facts.member_count) == ("Dead", 0)


@pytest.mark.parametrize(
    ("listed", "state"),
    [(["g"], "Unknown"), (["other"], "Dead")],
    ids=["listed", "not listed"],
)
def test_group_is_unknown_if_it_is_listed_but_the_newer_request_is_unsupported(
    monkeypatch, listed, state
):
    """If the broker nevertheless lists the group, a proxy may be blocking the request."""
    facts, _ = group_by(
        monkeypatch, DEAD, newer=IncompatibleBrokerVersion(), listed=listed
    )
    assert facts.state == state


def test_authorization_error_for_a_group_is_raised(monkeypatch):
    error = "[Error 30] GroupAuthorizationFailedError: no"
    newer = {"g": {"group_state": "", "members": [], "error": error}}
    with pytest.raises(GroupAuthorizationFailedError):
        group_by(monkeypatch, DEAD, newer=newer)
