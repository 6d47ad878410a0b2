"""Journals, and holds topics, of several clusters."""

import pytest

from safeconsumer.audit.control import Control
from safeconsumer.audit.results import Settings
from tests.harness.audit.bad import TP
from tests.harness.audit.telling import Telling, check


def member(name, cluster, topic, at=1000.0):
    told = Telling(name, at=at)
    told.assigned(TP, topics={"orders": topic}, cluster=cluster)
    return told.poll(TP, 0, 5).commit(TP, 5)


@pytest.mark.contract("S5")
def test_journals_of_two_clusters_are_not_said_to_be_of_a_topic_made_again():
    fleet = [member("a", "east", "1"), member("b", "west", "2", at=2000)]
    (result,) = check([one.journal() for one in fleet]).values()
    assert result.findings == ()
    assert result.unjudged["A2"] == (
        "a was on the cluster east and b on west: judge each cluster by itself"
    )


@pytest.mark.contract("S5")
@pytest.mark.parametrize("is_working", [False, True])
def test_a_history_of_another_cluster_acquits_nobody(*, is_working):
    told = member("a", "east", "1")
    if is_working:
        told.then("working", order="key")
    settings = Settings(control=Control(cluster="west"))
    (result,) = check([told.journal()], settings).values()
    said = "the holds topics are of the cluster west, and a was on east"
    checks = ("G2", "W10") if is_working else ("G2",)
    assert result.unjudged == dict.fromkeys(checks, said)


@pytest.mark.parametrize("known", [("east", "east"), (None, "east"), ("east", None)])
def test_one_cluster_is_no_reason_to_doubt(known):
    """Nor is one that is not known."""
    journals, history = known
    settings = Settings(control=Control(cluster=history))
    (result,) = check([member("a", journals, "1").journal()], settings).values()
    assert (result.findings, result.unjudged) == ((), {})
