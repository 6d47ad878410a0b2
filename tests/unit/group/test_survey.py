"""What the cluster says of groups, where it does not say everything."""

from types import SimpleNamespace

import pytest
from kafka import TopicPartition
from kafka.errors import GroupAuthorizationFailedError, KafkaTimeoutError

from safeconsumer.group import survey


def test_one_group_that_cannot_be_asked_about_leaves_the_others():
    """It ended the survey of all groups, each time."""
    names = [f"g{number}" for number in range(8)]
    refusal = GroupAuthorizationFailedError("g5")
    asked = []

    def ask(several):
        asked.append(several)
        if "g5" in several:
            raise refusal
        return dict.fromkeys(several, "told")

    others = [name for name in names if name != "g5"]
    found = survey._each(ask, names)
    assert found == (dict.fromkeys(others, "told"), {"g5": refusal})
    assert len(asked) == 7


def test_the_ends_of_control_topics_are_needed():
    """Of those that are there, and have a leader."""
    leaders = {"there": 1, "gone": 1, "leaderless": -1}
    there, *others = (TopicPartition(name, 0) for name in leaders)

    def describe_topics(names):
        return [
            {
                "name": one,
                "partitions": [{"partition_index": 0, "leader_id": leaders[one]}],
                "error_code": 3 * (one == "gone"),
            }
            for one in names
        ]

    def end_offsets(tps, **_):
        if answers:
            return dict.fromkeys(tps, 9)
        raise KafkaTimeoutError

    answers = True
    admin = SimpleNamespace(describe_topics=describe_topics)
    asker = SimpleNamespace(end_offsets=end_offsets)
    assert survey.ends_of([there, *others], admin, asker) == {there: 9}
    answers = False
    with pytest.raises(KafkaTimeoutError):
        survey.ends_of([there, *others], admin, asker)
