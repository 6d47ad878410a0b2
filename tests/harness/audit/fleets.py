"""
Reads tables of fleets; a fleet has a line for each journal and an expected verdict.

The first line of a block has the fleet's name, optional settings for the judge in
brackets, and the expected verdict on the fleet. Each further line describes a process:
its name, its group after ``/`` if that is not ``g``, its start time after ``@``, and
its steps. A step is a verb and its arguments. The verb is a method of
:class:`MemberJournal`, unless :func:`_do` gives the verb another meaning. ``g2`` is the
generation, ``@2000`` a time; ``e`` writes any other entry.

``fleets.txt`` has a fleet for each way to break each promise, named after the check
that detects it, and fleets that keep all promises. A fleet whose name begins with
``drained`` is judged with and without the setting ``is_drained``.
"""

import json
import re
from pathlib import Path

from tests.harness.audit.journals import MemberJournal, Operator

TP = "orders:0"
_IS_OF_A_CHECK = re.compile(r"[agw]\d")
_HEAD = re.compile(r"(.+?)(?: \[(.+)\])?: (.*)")
_PROCESS = re.compile(r"  (\w+)(?:/(\w*))?(?:@([\d.]+))?: ?(.*)")
_OF_ONE_PARTITION = {"poll", "deliver", "begin", "begin_all", "end", "handle"}
_SETTINGS = {
    "drained": {"is_drained": True},
    "uncompacted": {"uncompacted": frozenset({"orders"})},
    "skew 0.5": {"clock_skew": 0.5},
    "skew 1": {"clock_skew": 1.0},
    "skew 2": {"clock_skew": 2.0},
}


class Fleet:
    """
    One block of a table; calling the fleet returns the journals of its processes.

    Attributes:
        text: the expected verdict.
        settings: the judge's settings.
    """

    def __init__(self, name, settings, text, processes):
        self.__name__ = name
        self.settings = _SETTINGS[settings] if settings else {}
        self.text = text
        self._processes = processes

    def __call__(self):
        return [_process(line) for line in self._processes]

    def __repr__(self):
        return self.__name__


def _process(line):
    found = _PROCESS.fullmatch(line)
    assert found is not None, line
    name, group, at, steps = found.groups()
    group = "g" if group is None else group
    process = (
        Operator()
        if name == "operator"
        else MemberJournal(name, group, at=float(at or 1000))
    )
    for step in filter(None, steps.split("; ")):
        verb, *values = step.split(" ")
        named = {
            k: _value(v) for k, _, v in (v.partition("=") for v in values if "=" in v)
        }
        _do(process, verb, [_value(one) for one in values if "=" not in one], named)
    return process


def _value(text):
    try:
        return json.loads(text)
    except ValueError:
        return text


def _do(process, verb, values, named):  # noqa: C901, PLR0912 - one verb each
    match verb:
        case "own" | "gone" | "lost":
            is_generation = values and re.fullmatch(r"g-?\d+", str(values[0]))
            generation = int(values.pop(0)[1:]) if is_generation else 1
            event = {"own": "assigned", "gone": "revoked"}.get(verb, verb)
            process.then(event, partitions=values or [TP], generation=generation)
        case "pause" | "resume":
            back = {"ok": False} if named.pop("ok", True) is False else {}
            named = {"owner": named.pop("by", "app"), **named}
            process.call(verb, back, scopes=values, **named)
        case "pausing" | "paused" | "resuming" | "resumed":
            # A call on another thread has separate entries for its start and its
            # return.
            event = "call" if verb.endswith("ing") else "return"
            of_pause = {"lifetime": "until_resumed"} if verb.startswith("pau") else {}
            op = "pause" if of_pause else "resume"
            fields = {"op": op, "id": op, "scopes": values, "owner": "w", **of_pause}
            process.then(event, **fields, **named)
        case "seek":
            process.call("seek", named, offsets={TP: values[0]})
        case "commit":
            process.commit(TP, values[0], **named)
        case "unmeasured":
            process.ahead = None
        case "measures":
            process.then("clock", least=values[0], most=values[-1])
            process.ahead, process.written_ahead = None, min(values[-1], 0.0)
        case "asks":
            process.asks(TP, *values)
        case "acked":
            process.then("acked", tp=TP, first=values[0], last=values[1])
        case "begins":
            process.then("begins", tp=TP, offset=values[0])
        case "moved":
            process.then("moved", tp=TP, from_=values[0], next=values[1])
        case "hold" | "lift":
            process.then(verb, scope=values[0], owner=values[1], **named)
        case "works":
            process.then("working", order="key")
        case "complete":
            process.complete(TP, *values, **named)
        case "e":
            process.then(values[0], **named)
        case _ if verb.startswith("@"):
            process.until(float(verb[1:]))
        case _ if verb in _OF_ONE_PARTITION:
            getattr(process, verb)(TP, *values, **named)
        case _:
            getattr(process, verb)(*values, **named)


def fleets_in(path, **words):
    """Return the fleets in a table; ``words`` maps abbreviations to the steps they mean."""
    text = re.sub(r"^#.*\n", "", path.read_text(), flags=re.MULTILINE)
    for word, steps in words.items():
        text = re.sub(rf"\b{word}\b", steps.replace("\\", r"\\"), text)
    found = []
    for block in re.split(r"\n(?=\w)", text.replace("\n    ", " ").strip()):
        head, *processes = block.split("\n")
        found.append(Fleet(*_HEAD.fullmatch(head).groups(), processes))
    return found


FLEETS = {
    one.__name__: one for one in fleets_in(Path(__file__).with_name("fleets.txt"))
}
BAD = tuple(one for name, one in FLEETS.items() if _IS_OF_A_CHECK.match(name))
DRAINED = tuple(one for name, one in FLEETS.items() if name.startswith("drained"))
GOOD = tuple(one for one in FLEETS.values() if one not in {*BAD, *DRAINED})


WORDS = {
    # A member that obeys a hold from 1500 to 2000, and then continues.
    "OBEDIENT": "a: own; poll 0 5; commit 5; @1500.2; hold orders operator:eve "
    "written=1500.0 offset=0; @2000.2; lift orders operator:eve since=2000.0; @2001; "
    "poll 5 9; commit 9",
    "TWO_OWNERS": "a: own; poll 0 1; commit 1; gone\n"
    "  b@2000: own g2; asks 1 a#3; poll 1 2",
    # A client whose position jumps from 20 to 27.
    "HOLE": "a: own; poll 0 20; poll 20 30 first=27 count=3; commit 30",
    "HISTORY": "operator: held 2000 2900",
    "PLAIN": "pause orders:0 lifetime=plain",
    "WHOLE_ENDED": 'e lift scope=orders owner="app\\u0020(all)"',
    "WHOLE": 'e hold scope=orders owner="app\\u0020(all)"',
}
CASES = [
    fleet
    for path in sorted(Path(__file__).with_name("tables").glob("*.txt"))
    for fleet in fleets_in(path, **WORDS)
]


def check_of(fleet):
    """Return the check that a bad fleet fails; the fleet's name starts with it."""
    return fleet.__name__.partition("_")[0].upper()
