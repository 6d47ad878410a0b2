"""A member pauses its whole group and leaves it to one that never knew of it."""

from safeconsumer.demo.pausing import READ_FIRST, RECORDS
from safeconsumer.demo.stage import PARTITIONS, PATIENCE, Stage
from safeconsumer.group import topics
from safeconsumer.group.settings import Control
from safeconsumer.testing.polling import poll_until


def held_group(stage: Stage) -> None:
    """Pause a group, let another member take it over, and let that one resume it."""
    control = _control(stage)
    stage.produce(RECORDS)
    first = stage.program(control=control)
    first.read(READ_FIRST)
    first.consumer.pause_group(stage.topic, reason="db migration")
    stage.tally.paused()
    stage.produce(RECORDS)
    stage.say("the group is paused; a member joins that never knew of it")
    second = stage.program(control=control)
    poll_until(
        [first, second],
        lambda: first.owns(PARTITIONS // 2) and second.owns(PARTITIONS // 2),
        awaited="a half of the partitions for each",
        timeout=PATIENCE,
    )
    stage.say("the group is paused; the member that paused it leaves")
    first.consumer.close(autocommit=False)
    second.until(lambda: second.owns(PARTITIONS), "all partitions")
    second.linger()
    stage.say("the other one resumes the group")
    stage.tally.resumed()
    second.consumer.resume_group(stage.topic)
    second.drain()


def _control(stage: Stage) -> Control:
    prefix = stage.topic + "-"
    control = Control(
        operator_topic=prefix + "operators",
        group_topic=prefix + "holds",
        status_topic=None,
    )
    for name in control.topics:
        stage.broker.create_topic(name, 1, topics.HOLDS_SETTINGS)
    return control
