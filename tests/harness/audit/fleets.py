"""
For each promise a fleet that keeps all others and breaks this one, and good fleets.

They stand in ``fleets.txt``, one after the other: its name, what it does, and a line for
each process. A bad one has the name of the check that rejects it in front; any other is
a good one. What begins with ``drained`` is judged so. A step is a verb with its values,
and of :class:`MemberJournal` if it has no other meaning below; ``g2`` is the generation,
``@2000`` a moment, ``e`` any other entry.
"""

import json
import re
from pathlib import Path

from tests.harness.audit.journals import MemberJournal, Operator

TP = "orders:0"
_IS_OF_A_CHECK = re.compile(r"[agw]\d")
_PROCESS = re.compile(r"  (\w+)(?:@([\d.]+))?: (.*)")
_OF_ONE_PARTITION = {"poll", "deliver", "begin", "begin_all", "end", "handle"}


class Maker:
    """Makes one fleet of the table."""

    def __init__(self, name, does, processes):
        self.__name__ = name
        self.does = does
        self._processes = processes

    def __call__(self):
        return [_process(line) for line in self._processes]

    def __repr__(self):
        return self.__name__


def _process(line):
    found = _PROCESS.fullmatch(line)
    assert found is not None, line
    name, at, steps = found.groups()
    told = (
        Operator() if name == "operator" else MemberJournal(name, at=float(at or 1000))
    )
    for step in filter(None, steps.split("; ")):
        verb, *values = step.split(" ")
        named = {
            k: _value(v) for k, _, v in (v.partition("=") for v in values if "=" in v)
        }
        _do(told, verb, [_value(one) for one in values if "=" not in one], named)
    return told


def _value(text):
    try:
        return json.loads(text)
    except ValueError:
        return text


def _do(told, verb, values, named):  # noqa: C901, PLR0912 - one verb each
    match verb:
        case "own" | "gone" | "lost":
            is_generation = values and re.fullmatch(r"g-?\d+", str(values[0]))
            generation = int(values.pop(0)[1:]) if is_generation else 1
            event = {"own": "assigned", "gone": "revoked"}.get(verb, verb)
            told.then(event, partitions=values or [TP], generation=generation)
        case "pause" | "resume":
            back = {"ok": False} if named.pop("ok", True) is False else {}
            named = {"owner": named.pop("by", "app"), **named}
            told.call(verb, back, scopes=values, **named)
        case "seek":
            told.call("seek", named, offsets={TP: values[0]})
        case "commit":
            told.commit(TP, values[0], **named)
        case "unmeasured":
            told.ahead = None
        case "measures":
            told.then("clock", least=values[0], most=values[-1])
            told.ahead, told.written_ahead = None, min(values[-1], 0.0)
        case "asks":
            told.asks(TP, *values)
        case "acked":
            told.then("acked", tp=TP, first=values[0], last=values[1])
        case "begins":
            told.then("begins", tp=TP, offset=values[0])
        case "moved":
            told.then("moved", tp=TP, from_=values[0], next=values[1])
        case "hold" | "lift":
            told.then(verb, scope=values[0], owner=values[1], **named)
        case "works":
            told.then("working", order="key")
        case "complete":
            told.complete(TP, *values, **named)
        case "e":
            told.then(values[0], **named)
        case _ if verb.startswith("@"):
            told.until(float(verb[1:]))
        case _ if verb in _OF_ONE_PARTITION:
            getattr(told, verb)(TP, *values, **named)
        case _:
            getattr(told, verb)(*values, **named)


def fleets_in(path, **words):
    """Return the makers of a table; these words stand for longer steps in it."""
    text = re.sub(r"^#.*\n", "", path.read_text(), flags=re.MULTILINE)
    for word, steps in words.items():
        text = text.replace(word, steps)
    found = []
    for block in re.split(r"\n(?=\w)", text.replace("\n    ", " ").strip()):
        head, *processes = block.split("\n")
        name, does = head.split(": ", 1)
        found.append(Maker(name, does, processes))
    return found


FLEETS = {
    one.__name__: one for one in fleets_in(Path(__file__).with_name("fleets.txt"))
}
BAD = tuple(make for name, make in FLEETS.items() if _IS_OF_A_CHECK.match(name))
DRAINED = tuple(make for name, make in FLEETS.items() if name.startswith("drained"))
GOOD = tuple(make for make in FLEETS.values() if make not in {*BAD, *DRAINED})
