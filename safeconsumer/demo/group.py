"""Defines the situation in which a whole group is paused, including later members."""

from safeconsumer.demo.pausing import READ_FIRST, RECORDS
from safeconsumer.demo.stage import PARTITIONS, PATIENCE, Stage
from safeconsumer.group import topics
from safeconsumer.group.operator import Operator
from safeconsumer.group.settings import Control
from safeconsumer.testing.polling import poll_until

_OWNER = "demo"


def held_group(stage: Stage) -> None:
    """Pause a group, let another member take over all partitions, and resume the group."""
    control = _control(stage)
    with Operator(stage.broker.client_config, control) as operator:
        _play(stage, control, operator)


def _play(stage: Stage, control: Control, operator: Operator) -> None:
    stage.produce(RECORDS)
    first = stage.program(control=control)
    first.read(READ_FIRST)
    operator.pause(stage.group, stage.topic, owner=_OWNER, reason="db migration")
    first.until(lambda: len(first.consumer.quiet()) == PARTITIONS, "the hold")
    stage.tally.paused()
    stage.produce(RECORDS)
    stage.say("the group is paused; a member that did not see the pause joins")
    second = stage.program(control=control)
    poll_until(
        [first, second],
        lambda: first.owns(PARTITIONS // 2) and second.owns(PARTITIONS // 2),
        awaited="half of the partitions for each member",
        timeout=PATIENCE,
    )
    stage.say("the group is paused; the member that saw the pause leaves")
    first.consumer.close(autocommit=False)
    second.until(lambda: second.owns(PARTITIONS), "all partitions")
    second.linger()
    stage.say("the group is resumed")
    stage.tally.resumed()
    operator.resume(stage.group, stage.topic, owner=_OWNER)
    second.drain()


def _control(stage: Stage) -> Control:
    control = Control(holds_topic=stage.topic + "-holds", status_topic=None)
    stage.broker.create_topic(control.holds_topic, 1, topics.HOLDS_SETTINGS)
    return control
