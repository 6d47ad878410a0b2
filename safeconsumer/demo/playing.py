"""Plays situations one after another, each with all its clients at the same time."""

import queue
import textwrap
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from attrs import frozen

from safeconsumer._waits import InterruptibleEvent
from safeconsumer.demo.cluster import UsersCluster
from safeconsumer.demo.situations import Situation
from safeconsumer.demo.stage import Broker, CancelledError, Client, staged
from safeconsumer.demo.tally import Counts, Failure, Tally

_INDENT = " " * 6

Say = Callable[[str], object]


@frozen(kw_only=True)
class Result:
    """
    A client's result in a situation.

    Attributes:
        situation: the situation that was played.
        client: the client that played it.
        counts: the counts of records at the end of the play.
        seconds: the duration of the play in seconds.
        error: why the situation could not be played to its end, or None.
    """

    situation: Situation
    client: Client
    counts: Counts
    seconds: float
    error: str | None = None

    @property
    def title(self) -> str:
        """The name of the client in the table."""
        return self.situation.title(self.client)

    @property
    def failures(self) -> tuple[Failure, ...]:
        """The kinds of broken promises; empty if all promises were kept."""
        found = {
            Failure.LEAKED: self.counts.while_paused,
            Failure.LOST: 0 if self.error else self.counts.lost,
            Failure.TWICE: self.counts.twice,
        }
        return tuple(failure for failure, count in found.items() if count)

    @property
    def outcome(self) -> str:
        """The result in a few words, for the table."""
        return ", ".join(self.failures) or ("cut short" if self.error else "ok")

    @property
    def is_as_known(self) -> bool:
        """Whether SafeConsumer kept its promises, or KafkaConsumer failed as known."""
        if self.client.is_ours:
            return not self.failures
        return self.situation.known in self.failures


def play_all(situations: Sequence[Situation], broker: Broker, say: Say) -> list[Result]:
    """
    Play the situations; ``say`` is called with lines about their progress.

    ``say`` is called on the caller's thread. When the call returns or raises, every
    consumer is closed and every process has exited.

    Raises:
        KafkaTimeoutError: the user's cluster no longer answers.
    """
    results: list[Result] = []
    for number, situation in enumerate(situations, start=1):
        say(f"[{number}/{len(situations)}] {situation.name}")
        say(textwrap.indent(textwrap.fill(situation.story, 74), _INDENT))
        results += _side_by_side(situation, broker, say)
    return results


def _side_by_side(situation: Situation, broker: Broker, say: Say) -> list[Result]:
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    cancelled = InterruptibleEvent()
    clients = situation.clients

    def play(client: Client) -> Result:
        try:
            return _played(situation, client, broker, lines.put, cancelled)
        finally:
            lines.put(None)

    with ThreadPoolExecutor(len(clients), thread_name_prefix="demo") as pool:
        try:
            plays = [pool.submit(play, client) for client in clients]
            for _ in clients:
                while (line := lines.get()) is not None:
                    say(line)
            return [one.result() for one in plays]
        except BaseException:
            cancelled.set()
            raise


def _played(
    situation: Situation,
    client: Client,
    broker: Broker,
    put: Say,
    cancelled: InterruptibleEvent,
) -> Result:
    """Play a situation; if it ended early, as on a stalling machine, play it once more."""

    def say(step: str) -> None:
        put(f"{_INDENT}{situation.title(client):13}  {step}")

    result = _once(situation, client, broker, say, cancelled)
    if result.error is not None:
        if isinstance(broker, UsersCluster):
            broker.check()  # raises if the cluster is gone
        say(f"played again, as the first play ended early: {result.error}")
        result = _once(situation, client, broker, say, cancelled)
    say(f"{result.outcome}, in {result.seconds:.1f} s")
    return result


def _once(
    situation: Situation,
    client: Client,
    broker: Broker,
    say: Say,
    cancelled: InterruptibleEvent,
) -> Result:
    began = time.monotonic()
    error = None
    tally = Tally()
    try:
        with staged(client, broker, tally, say, cancelled) as stage:
            situation.play(stage)
    except CancelledError:
        raise
    except Exception as caught:  # noqa: BLE001 - the error is a result
        error = f"{type(caught).__name__}: {caught}"
    return Result(
        situation=situation,
        client=client,
        counts=tally.counts(),
        seconds=round(time.monotonic() - began, 1),
        error=error,
    )
