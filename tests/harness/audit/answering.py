"""Adds to fleets by hand what the broker answers: what is committed, and by whom."""

import copy
import json
from itertools import chain

_STANDS = {"begins", "deliver", "moved"}


class _Member:
    def __init__(self, told):
        self.told = told
        self.head, *self.lines = [json.loads(line) for line in told.lines]
        self.name, self.group = self.head["member"], self.head["group"]
        self.answers = {}  # before which line, what was answered

    def done(self):
        """Yield commits: when, the partition, the offset, and the entry of the call."""
        calls = {}
        for line in self.lines:
            if line.get("op") != "commit":
                continue
            if line["e"] == "call":
                calls[line["id"]] = line
                continue
            call = calls.pop(line["id"], line)
            if line.get("ok", True):
                yield line, call
        for call in calls.values():
            yield call, call

    def asking(self):
        """Yield the lines before which an ownership asks what is committed."""
        waiting = set()
        for line in self.lines:
            if line["e"] in {"assigned", "revoked", "lost"}:
                change = (
                    waiting.update
                    if line["e"] == "assigned"
                    else waiting.difference_update
                )
                change(line["partitions"])
            elif line.get("ok", True) is False:
                continue
            elif line["e"] == "committed":
                waiting.difference_update(line["offsets"])
            elif line["e"] == "reset" or (
                line.get("op") == "seek" and line["e"] == "return"
            ):
                waiting.difference_update(line.get("offsets") or [line.get("tp")])
            elif line["e"] in _STANDS and line["tp"] in waiting:
                waiting.discard(line["tp"])
                yield line, line["tp"]
            elif line.get("op") == "commit" and line["e"] == "call":
                for tp in waiting & {*line["offsets"]}:
                    waiting.discard(tp)
                    yield line, tp

    def written(self):
        told = copy.copy(self.told)
        lines, place = [], {0: 0}
        for line in self.lines:
            if line["n"] in self.answers:
                found = {"e": "committed", "offsets": self.answers[line["n"]]}
                lines.append({"n": 0, "at": line["at"], **found})
            lines.append(line)
            place[line["n"]] = len(lines)
        for number, line in enumerate(lines, 1):
            line["n"] = number
            if line.get("after") is not None:
                line["after"] = place[line["after"]]
        for line in lines:
            for answer in (line.get("offsets") or {}).values():
                if line["e"] == "committed" and answer is not None:
                    name, _, number = answer[1].partition("#")
                    answer[1] = f"{name}#{self.places[name][int(number)]}"
        told.lines = [json.dumps(one) for one in (self.head, *lines)]
        return told

    def numbered(self):
        """Return the numbers that entries will have, by those that they have."""
        more, found = 0, {}
        for line in self.lines:
            more += line["n"] in self.answers
            found[line["n"]] = line["n"] + more
        return found


def answered(fleet):
    """Return the fleet with the broker's answers; members of no group get none."""
    members = [_Member(one) for one in fleet]
    ours = [one for one in members if one.group]
    events = [
        *((line["at"], 1, member, line, call) for member in ours for line, call in member.done()),
        *((line["at"], 0, member, line, tp) for member in ours for line, tp in member.asking()),
    ]
    kept = {}
    for _, is_commit, member, line, more in sorted(events, key=lambda one: one[:2]):
        if is_commit:
            for tp, offset in line["offsets"].items():
                kept[member.group, tp] = [offset, f"{member.name}#{more['n']}"]
        else:
            found = kept.get((member.group, more))
            found = None if found is None else [*found]
            member.answers.setdefault(line["n"], {})[more] = found
    places = {one.name: one.numbered() for one in ours}
    for one in members:
        one.places = places
    return [one.written() if one.group else one.told for one in members]


def lines_of(fleet):
    return chain.from_iterable(one.lines for one in fleet)
