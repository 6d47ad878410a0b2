"""
What Java calls: one function for all questions, about all streams of a session.
"""

import itertools
import logging
from collections.abc import Callable, MutableMapping
from typing import Any, ClassVar
from urllib.parse import parse_qsl

from safeconsumer.errors import (
    ClientPropertyError,
    ControlTopicError,
    SparkSettingError,
)
from safeconsumer.spark import options
from safeconsumer.spark.options import SourceOptions
from safeconsumer.spark.stream import Stream

log = logging.getLogger("safeconsumer.spark")

Opener = Callable[[str, SourceOptions], Stream]


class Bridge:
    """
    Answers the shim: an empty text, or why it cannot be done.

    Thread rules: any thread; those of Java.

    Args:
        open_stream: makes a stream of a name and its options.
    """

    def __init__(self, open_stream: Opener) -> None:
        self._open_stream = open_stream
        self._streams: dict[str, Stream] = {}
        self._numbers = itertools.count(1)

    def apply(self, question: str, facts: Any) -> str:  # noqa: ANN401 - py4j's map
        """
        Answer; what must be known besides is put into ``facts``.

        Raises:
            Exception: a defect. The shim then holds everything.
        """
        try:
            answer: str = getattr(self, f"_{question}")(facts)
        except (ClientPropertyError, ControlTopicError, SparkSettingError) as error:
            return str(error)
        except Exception:
            log.exception("the question %r was not answered", question)
            raise
        return answer

    def streams(self) -> tuple[Stream, ...]:
        """
        Return the streams that run.
        """
        return tuple(self._streams.values())

    def _complete(self, facts: MutableMapping[str, str]) -> str:
        given = _options(facts)
        options.parse(given)
        for name, value in options.completed(given).items():
            facts[name] = value
        return ""

    def _open(self, facts: MutableMapping[str, str]) -> str:
        name = str(next(self._numbers))
        self._streams[name] = self._open_stream(name, options.parse(_options(facts)))
        facts["stream"] = name
        return ""

    def _plan(self, facts: MutableMapping[str, str]) -> str:
        return self._streams[facts["stream"]].plan(facts)

    def _freeze(self, facts: MutableMapping[str, str]) -> str:
        return self._streams[facts["stream"]].freeze(facts)

    def _close(self, facts: MutableMapping[str, str]) -> str:
        stream = self._streams.pop(facts["stream"], None)
        if stream is not None:
            stream.close()
        return ""

    class Java:
        """
        Tells py4j which interface this is.
        """

        implements: ClassVar = ["java.util.function.BiFunction"]


def _options(facts: MutableMapping[str, str]) -> dict[str, str]:
    # In one text: to go through a map of Java's takes ten milliseconds an entry.
    return dict(parse_qsl(facts["options"], keep_blank_values=True))
