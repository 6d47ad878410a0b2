"""
Changed subscriptions, and topics that go and come.
"""

from tests.conformance.consumer import JOINING, until
from tests.conformance.lab import Lab
from tests.conformance.registry import case
from tests.conformance.team import team

PART = "Over changed subscriptions"


@case(PART, "unsubscribe() and subscribe() again: still paused")
def unsubscribed_and_back(lab: Lab) -> None:
    here = team(lab)
    paused = here.pause()
    here.consumer.unsubscribe()
    here.consumer.subscribe(here.topic, here.witness.topic)
    here.regain()
    here.beat()
    paused.prove()


@case(PART, "Subscribed to another topic and back: still paused")
def another_topic_and_back(lab: Lab) -> None:
    here = team(lab)
    paused = here.pause()
    here.consumer.subscribe(here.witness.topic)
    until(
        [here.consumer],
        lambda: here.consumer.assignment() == {here.witness},
        "only the other topic",
        timeout=JOINING,
    )
    here.beat()
    here.consumer.subscribe(here.topic, here.witness.topic)
    here.regain()
    here.beat()
    paused.prove()


@case(PART, "The topic is deleted and created again: still paused")
def topic_created_again(lab: Lab) -> None:
    here = team(lab, each=0, taking=0)
    paused = here.pause()
    lab.recreate(here.tps)
    until(
        [here.consumer],
        lambda: here.consumer.assignment() == {*here.tps, here.witness},
        "the new topic",
        timeout=JOINING,
    )
    lab.produce(here.tps, 20)
    here.beat()
    paused.prove()
