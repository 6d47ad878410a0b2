"""
Answers the Java shim's questions with one function for all streams of a session.

Questions and answers are strings of ``name=value`` pairs, as in a URL's query.
``design/spark.md`` lists them, and defines a valid answer.
"""

import itertools
import logging
from collections.abc import Callable, Mapping
from typing import ClassVar
from urllib.parse import parse_qsl, urlencode
from uuid import uuid4

from safeconsumer.errors.base import (
    ClientPropertyError,
    ControlTopicError,
    HeldDataLostError,
    HoldsUnreadableError,
    SparkSettingError,
)
from safeconsumer.spark import options
from safeconsumer.spark.activity import query_name
from safeconsumer.spark.options import SourceOptions
from safeconsumer.spark.queries import Query
from safeconsumer.spark.stream import Stream

log = logging.getLogger("safeconsumer.spark")

# Both sides must use the same protocol version, because an answer that the shim does
# not know must never count as consent.
PROTOCOL = "6"

# The option by which a session tells its streams the name of the bridge that decides.
DECIDER = "holds.decider"

Opener = Callable[[str, SourceOptions, str], Stream]
Facts = Mapping[str, str]

# If one of these errors is raised, the query fails with the error's message. All
# other errors are defects, after which everything is held.
_REFUSALS = (
    *(ClientPropertyError, ControlTopicError, HeldDataLostError),
    *(HoldsUnreadableError, SparkSettingError),
)


class Bridge:
    """
    Answers each question of the shim with consent, a refusal, or no decision.

    Thread rules: any thread may use this; threads of the JVM call the methods.

    Args:
        open_stream: creates a stream from a name, its options, and the folder that
            Spark gives the source in the checkpoint.
        ends: returns whether the query with an id stops on its own.

    Attributes:
        decider: the unique name under which the shim knows this bridge.
    """

    def __init__(self, open_stream: Opener, ends: Callable[[str], bool]) -> None:
        self.decider = uuid4().hex
        self._open_stream = open_stream
        self._ends = ends
        self._made: dict[str, Query] = {}
        self._streams: dict[str, Stream] = {}
        self._numbers = itertools.count(1)
        self._failed: dict[tuple[str, str], str] = {}

    def apply(self, question: str, text: str) -> str:
        """Answer a question; never raises."""
        facts = dict(parse_qsl(text, keep_blank_values=True))
        answer = {"protocol": PROTOCOL, "decider": self.decider}
        answer["number"] = facts.get("number", "")
        verdict, answered = self._judged(question, facts)
        # The order of the fields matters, because the shim checks the beginning of an
        # answer.
        return urlencode({**answer, "verdict": verdict, **answered})

    def streams(self) -> tuple[Stream, ...]:
        """Return the running streams."""
        return tuple(self._streams.values())

    def made(self) -> tuple[Query, ...]:
        """
        Return the queries of streams that Spark has created but not opened yet.

        A caller that calls this method before :meth:`streams` does not miss any stream.
        Spark silently drops a stream whose query has ended.
        """
        return tuple(self._made.values())

    def _judged(self, question: str, facts: Facts) -> tuple[str, Facts]:
        asker = facts.get("stream", ""), question
        try:
            answered = self._answer(question, facts)
        except _REFUSALS as error:
            return "refuse", {"why": str(error)}
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            if self._failed.get(asker) != why:  # log it once, not at every trigger
                self._failed[asker] = why
                log.exception("the question %r was not answered", question)
            return "none", {"why": why}
        self._failed.pop(asker, None)
        return "go", answered

    def _answer(self, question: str, facts: Facts) -> Facts:
        if (facts["protocol"], facts["decider"]) != (PROTOCOL, self.decider):
            message = "the question is of another protocol, or for another decider"
            raise ValueError(message)
        match question:
            case "hello":
                return {}
            case "complete":
                return self._complete(facts)
            case "made":
                return self._note(facts)
            case "open":
                return self._open(facts)
            case "close":
                return self._close(facts)
            case "again" | "plan" | "freeze" | "ended":
                stream = self._streams[facts["stream"]]
                return getattr(stream, question)(facts)  # type: ignore[no-any-return]  # by name
        message = f"there is no question {question!r}"
        raise ValueError(message)

    def _complete(self, facts: Facts) -> Facts:
        given = _options(facts)
        options.parse(given)
        return {"options": urlencode(options.completed(given))}

    def _note(self, facts: Facts) -> Facts:
        query = Query(id=facts["query"], name=query_name(facts["batch"]))
        self._made[facts["stream"]] = query
        return {"ends": "yes" if self._ends(query.id) else "no"}

    def _open(self, facts: Facts) -> Facts:
        stream = facts["stream"]
        # the shim repeats the question if an answer arrived too late
        if stream not in self._streams:
            name = str(next(self._numbers))
            opened = self._open_stream(
                name, options.parse(_options(facts)), facts.get("checkpoint", "")
            )
            self._streams[stream] = opened
            # add first, then remove, so that the stream is always in at least one of
            # the two maps
            self._made.pop(stream, None)
        return {}

    def _close(self, facts: Facts) -> Facts:
        self._made.pop(facts["stream"], None)
        stream = self._streams.pop(facts["stream"], None)
        for asker in [one for one in self._failed if one[0] == facts["stream"]]:
            self._failed.pop(asker)
        if stream is not None:
            stream.close()
        return {}

    class Java:
        """Names the Java interface that the bridge implements, as py4j requires."""

        implements: ClassVar = ["java.util.function.BiFunction"]


def _options(facts: Facts) -> dict[str, str]:
    given = dict(parse_qsl(facts["options"], keep_blank_values=True))
    given.pop(DECIDER, None)
    return given
