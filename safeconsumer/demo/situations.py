"""Lists every scenario, with what it shows and where the stock client fails."""

from collections.abc import Callable

from attrs import frozen

from safeconsumer.demo.forgotten import forgotten_join
from safeconsumer.demo.group import whole_group
from safeconsumer.demo.levels import (
    consumer_pause,
    pattern_pause,
    topic_pause,
)
from safeconsumer.demo.pausing import (
    lost_membership,
    moved_away,
    ticket_loop,
)
from safeconsumer.demo.results import Failure
from safeconsumer.demo.stage import Stage
from safeconsumer.demo.starvation import resume_starvation
from safeconsumer.demo.worker import slow_handlers


@frozen(kw_only=True)
class Scenario:
    """
    Something that happens to consumers, the same for every client.

    Attributes:
        name: the scenario's name.
        title: what happens, in a few words.
        story: what happens, in two lines at most.
        stock_code: how a program pauses or polls with kafka-python's client.
        safe_code: the same with SafeConsumer.
        stock_failure: how the stock client is known to fail in it.
        play: plays it on a stage.
        evicts: whether a member loses its membership in it on purpose.
    """

    name: str
    title: str
    story: str
    stock_code: str
    safe_code: str
    stock_failure: Failure
    play: Callable[[Stage], None]
    evicts: bool = False


_PAUSE_ASSIGNED = "pause(*assignment())"

SCENARIOS = (
    Scenario(
        name="ticket-loop",
        title="KAFKA-13463: pause() before every poll()",
        story="Every partition is paused before every poll. Another member of the "
        "group leaves, joins, and leaves again.",
        stock_code="pause(*assignment()); poll(500)",
        safe_code="pause(*assignment()); poll(500)",
        stock_failure=Failure.LEAKED,
        play=ticket_loop,
    ),
    Scenario(
        name="moved-away",
        title="Partitions move to another member and back",
        story="Every partition is paused, once. Another member joins, takes half of "
        "them, and leaves again.",
        stock_code=_PAUSE_ASSIGNED,
        safe_code=_PAUSE_ASSIGNED,
        stock_failure=Failure.LEAKED,
        play=moved_away,
    ),
    Scenario(
        name="lost-membership",
        title="The member is thrown out of its group and rejoins",
        story="Every partition is paused, once. The program does not poll for longer "
        "than max.poll.interval.ms; then it polls again.",
        stock_code=_PAUSE_ASSIGNED,
        safe_code=_PAUSE_ASSIGNED,
        stock_failure=Failure.LEAKED,
        play=lost_membership,
        evicts=True,
    ),
    Scenario(
        name="topic-pause",
        title="A whole topic is paused",
        story="Then another member leaves, and partitions of the topic are gained. "
        "The stock client can only pause what is assigned.",
        stock_code=_PAUSE_ASSIGNED,
        safe_code='pause("orders")',
        stock_failure=Failure.LEAKED,
        play=topic_pause,
    ),
    Scenario(
        name="pattern-pause",
        title="All topics that match a pattern are paused",
        story="Then another member leaves, and a new topic appears that matches. "
        "The stock client can only pause what is assigned.",
        stock_code=_PAUSE_ASSIGNED,
        safe_code='pause(re.compile("orders-.*"))',
        stock_failure=Failure.LEAKED,
        play=pattern_pause,
    ),
    Scenario(
        name="consumer-pause",
        title="The whole consumer is paused",
        story="Then another member leaves, and a new topic appears. "
        "The stock client can only pause what is assigned.",
        stock_code=_PAUSE_ASSIGNED,
        safe_code="pause_all()",
        stock_failure=Failure.LEAKED,
        play=consumer_pause,
    ),
    Scenario(
        name="resume-starvation",
        title="A partition is resumed, and nothing comes",
        story="It was paused in the middle of a batch. Another partition is read to "
        "its end before it is resumed. No group, no rebalance.",
        stock_code="pause(p); poll(); resume(p); poll()",
        safe_code="pause(p); poll(); resume(p); poll()",
        stock_failure=Failure.LOST,
        play=resume_starvation,
    ),
    Scenario(
        name="forgotten-join",
        title="A rebalance that lasts longer than one poll()",
        story="A new topic appears while the other member is busy; this one polls "
        "100 ms at a time. Every record belongs to one of them.",
        stock_code="poll(100)",
        safe_code="poll(100)",
        stock_failure=Failure.DUPLICATED,
        play=forgotten_join,
    ),
    Scenario(
        name="worker",
        title="Slow handlers, a rebalance, and a crash",
        story="A member with 8 threads has more work than it can do. Another one "
        "joins; then the first is killed. Delivered is what a handler has finished.",
        stock_code="for r in poll(): pool.submit(handle, r)",
        safe_code="Worker(consumer, handle).run()",
        stock_failure=Failure.LOST,
        play=slow_handlers,
    ),
    Scenario(
        name="group",
        title="A whole group is paused, and its processes are restarted",
        story="An operator pauses it; the stock client's listeners pause again.",
        stock_code="on_partitions_assigned: pause()",
        safe_code="SafeConsumer(control=Control())",
        stock_failure=Failure.LEAKED,
        play=whole_group,
    ),
)
