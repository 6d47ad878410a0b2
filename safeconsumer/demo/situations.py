"""Lists the situations of the demo, each with kafka-python's known failure."""

from collections.abc import Callable

from attrs import frozen

from safeconsumer.demo.group import held_group
from safeconsumer.demo.pausing import flag, lost_membership, mid_batch, ticket_loop
from safeconsumer.demo.stage import SAFE, STOCK, Client, Stage
from safeconsumer.demo.tally import Failure
from safeconsumer.demo.worker import slow_handlers


@frozen(kw_only=True)
class Situation:
    """
    A situation that every client goes through in the same way.

    Attributes:
        name: the name of the situation.
        story: the events of the situation, in one or two sentences.
        play: the function that plays the situation on a stage.
        clients: the clients that play the situation.
        stock: the name of the kafka-python program in the table.
        known: the known failure of the kafka-python program.
        is_counted: whether kafka-python has a call for the situation. If not, the
            program around kafka-python fails, and not kafka-python itself.
    """

    name: str
    story: str
    play: Callable[[Stage], None]
    clients: tuple[Client, ...] = (STOCK, SAFE)
    stock: str = STOCK.title
    known: Failure = Failure.LEAKED
    is_counted: bool = True

    def title(self, client: Client) -> str:
        """Return the name of a client in the table."""
        return client.title if client.is_ours else self.stock


SITUATIONS = (
    Situation(
        name="ticket-loop",
        story="A program calls pause(*assignment()) before every poll(), as in "
        "KAFKA-13463. Another member joins the group and leaves it again.",
        play=ticket_loop,
    ),
    Situation(
        name="flag",
        story="A program with a flag calls pause(*assignment()) once and "
        "resume(*assignment()) once. In between, another member joins and leaves again.",
        play=flag,
    ),
    Situation(
        name="lost-membership",
        story="A program calls pause(*assignment()) once, does not poll for longer than "
        "max.poll.interval.ms, and then polls again.",
        play=lost_membership,
    ),
    Situation(
        name="mid-batch",
        story="As in kafka-python's issue 2011 each partition is paused after its first "
        "records, then all are resumed. No member joins or leaves.",
        play=mid_batch,
        known=Failure.LOST,
    ),
    Situation(
        name="worker",
        story="A process with slow handlers is killed, and another takes over. One client "
        "is a thread pool behind poll(), and the other a Worker. A record counts as "
        "delivered when its handler has ended.",
        play=slow_handlers,
        stock="a thread pool",
        known=Failure.LOST,
        is_counted=False,
    ),
    Situation(
        name="group",
        story="The whole group is paused; another member joins, and the first leaves. "
        "kafka-python has no such pause.",
        play=held_group,
        clients=(SAFE,),
        is_counted=False,
    ),
)
