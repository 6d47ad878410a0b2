"""Writes journals entry by entry, and judges the journals of fleets."""

import io
import json
import math

from safeconsumer.audit.control import Control, Span
from safeconsumer.audit.judge import Judge
from safeconsumer.audit.results import Settings
from safeconsumer.audit.stream import Joined, Part
from safeconsumer.journal.format import NOTE


class MemberJournal:
    """Writes the journal of one process; each step takes a tenth of a second."""

    def __init__(self, member="a", group="g", at=1000.0):
        self.at = at
        self.ahead = 0.0  # seconds by which the broker's clock is ahead at the end
        head = {"journal": 5, "member": member, "group": group, "at": at}
        self.lines = [json.dumps(head)]
        self.written_ahead = 0.0  # the broker clock's lead in seconds at deliveries
        self._calls = 0
        self._polling = None

    def until(self, at):
        """Advance the journal's clock to this time."""
        self.at = at
        return self

    def then(self, event, **fields):
        self.at = round(self.at + 0.1, 3)
        if "from_" in fields:
            fields["from"] = fields.pop("from_")
        line = {"n": len(self.lines), "at": self.at, "e": event, **fields}
        self.lines.append(json.dumps(line))
        return self

    def call(self, op, back=None, **fields):
        self._calls += 1
        self.then("call", op=op, id=self._calls, **fields)
        return self.then("return", op=op, id=self._calls, **fields, **(back or {}))

    def pause(self, *scopes, owner="app", **back):
        return self.call("pause", back, scopes=scopes, owner=owner)

    def resume(self, *scopes, owner="app", **back):
        return self.call("resume", back, scopes=scopes, owner=owner)

    def assigned(self, *tps, generation=1, **more):
        return self.then("assigned", partitions=tps, generation=generation, **more)

    def asks(self, tp, offset, note="", metadata=""):
        """
        Write the committed offset that the broker returned for a partition, or None.

        The commit's metadata is either ``note``, which names a journal and an entry, as
        in ``a#3``, or the program's own ``metadata``.
        """
        found = f"{NOTE}{note}" if note else metadata
        return self.then("committed", offsets={tp: offset}, notes={tp: found})

    def revoked(self, *tps, generation=1):
        return self.then("revoked", partitions=tps, generation=generation)

    def polls(self):
        """Start the poll that returns the next delivery; a poll has no entry of its own."""
        self._polling = len(self.lines) - 1, self.at
        return self

    def poll(self, tp="", start=0, end=0, **more):
        """Poll; deliver the offsets from ``start`` to ``end - 1`` if ``tp`` is given."""
        self.at = round(self.at + 0.1, 3)
        return self.polls().deliver(tp, start, end, **more) if tp else self

    def deliver(self, tp, start, end, **more):
        """
        Deliver the offsets from ``start`` to ``end - 1``.

        ``more`` overrides fields of the entry. By default the broker has just appended
        the first record; ``written`` sets another time.
        """
        if self._polling is None:
            self.polls()
        after, asked = self._polling or (0, 0.0)
        self._polling = None
        run = {"first": start, "last": end - 1, "count": end - start}
        run |= {"after": after, "asked": asked, "written": self.at + self.written_ahead}
        run |= more
        return self.then("deliver", tp=tp, from_=start, next=end, **run)

    def begin(self, tp, offset, lane="", **more):
        """Start a handler for one record; the record's offset is the handler's id."""
        return self.then("handle", tp=tp, offset=offset, id=offset, lane=lane, **more)

    def begin_all(self, tp, *offsets):
        """Start one handler for a batch of these records, which share a lane."""
        return self.begin(tp, offsets[0], batch=offsets)

    def end(self, tp, *offsets, ok=True, **more):
        """Finish the handlers for these records."""
        for offset in offsets:
            self.then("handled", tp=tp, offset=offset, id=offset, ok=ok, **more)
        return self

    def handle(self, tp, *offsets, ok=True):
        """Start and finish a handler for each of these records, one after another."""
        for offset in offsets:
            self.begin(tp, offset).end(tp, offset, ok=ok)
        return self

    def complete(self, tp, offset, why, **more):
        return self.then("completed", tp=tp, offset=offset, why=why, **more)

    def commit(self, tp, offset, **back):
        return self.call("commit", back, offsets={tp: offset})

    def journal(self):
        return parsed("by hand", self.text())

    def text(self):
        clock = {
            "n": len(self.lines),
            "at": json.loads(self.lines[-1])["at"],
            "e": "clock",
        }
        bounds = {"least": self.ahead, "most": self.ahead}
        last = [] if self.ahead is None else [json.dumps(clock | bounds)]
        return "\n".join([*self.lines, *last, ""])


class Operator(MemberJournal):
    """An operator that holds the group ``g``; the operator's own journal stays empty."""

    def __init__(self):
        super().__init__("operator", group="")
        self.spans, self.targets, self.facts = [], {}, {}

    def held(self, start, end=math.inf, scope="orders", owner="alice"):
        """Hold a scope from ``start`` to ``end``, by the broker's clock."""
        named = {"group": "g", "holder": f"operator:{owner}", "scope": scope}
        self.spans.append(Span(start=start, end=end, **named))
        return self

    def topics(self, **facts):
        """Set further fields of ``Control``, such as those that describe the holds topics."""
        self.facts |= facts
        return self

    def resets(self, tp, offset, owner="alice", start=-math.inf, end=math.inf):
        """Reset the group to an offset; the hold lasts from ``start`` to ``end``."""
        target = "g", f"operator:{owner}", tp, offset
        self.targets.setdefault(target, []).append((start, end))
        return self


def control_in(fleet):
    """Return the holds that a fleet's operators place; None if the fleet has no operator."""
    operators = [one for one in fleet if isinstance(one, Operator)]
    if not operators:
        return None
    return Control(
        spans=tuple(span for one in operators for span in one.spans),
        targets={k: v for one in operators for k, v in one.targets.items()},
        **{k: v for one in operators for k, v in one.facts.items()},
    )


class Line:
    """An entry of a journal, with all its fields."""

    def __init__(self, member, fields):
        self.member = member
        self.number, self.at, self.event = (
            fields.pop(name) for name in ("n", "at", "e")
        )
        self.fields = fields

    def __getitem__(self, name):
        return self.fields.get(name)


class Read(Joined):
    """A journal in one file; the judge and the tests can read its entries."""

    def __init__(self, name, data):
        super().__init__([Part(name, lambda: io.BytesIO(data))])
        self._data = data.decode(errors="replace")

    @property
    def lines(self):
        _, *lines = self._data.split("\n")[:-1]
        return [Line(self.member, json.loads(line)) for line in lines]


def parsed(name, text):
    return Read(name, text.encode())


def read(path):
    return Read(str(path), path.read_bytes())


def check(journals, settings=None):
    """Judge all these journals together."""
    judge = Judge(settings or Settings())
    for journal in journals:
        judge.read(journal)
    return judge.results()


def judged(fleet, **assumed):
    """Judge a fleet with these settings and its operators' holds; return all results."""
    settings = Settings(**{"control": control_in(fleet), **assumed})
    return [*check([one.journal() for one in fleet], settings).values()]


def verdict_on(*fleet, **assumed):
    """Judge a fleet that uses only one partition; return the only result."""
    (result,) = judged(fleet, **assumed)
    return result


def failed(fleet, **assumed):
    """Return the checks that a fleet fails."""
    return {one.check for result in judged(fleet, **assumed) for one in result.findings}


def unjudged(fleet, **assumed):
    """Return the checks that the judge cannot decide for a fleet, each with the reason."""
    results = judged(fleet, **assumed)
    return {check: why for one in results for check, why in one.unjudged.items()}


def outcome(fleet, **assumed):
    """Return a fleet's failed checks and, marked with ``?``, its undecided checks."""
    doubtful = (f"{check}?" for check in unjudged(fleet, **assumed))
    return " ".join([*sorted(failed(fleet, **assumed)), *sorted(doubtful)]) or "clean"


def findings_of(results):
    """Return the findings of all results; assert that there is at least one result."""
    assert results
    return [one for result in results.values() for one in result.findings]


def journals_in(folder):
    """Return the journals that members have written into a folder."""
    return [read(path) for path in folder.glob("*.journal")]


def entries_in(folder, *events):
    """Return the entries of these kinds in the journals of a folder."""
    lines = (one for journal in journals_in(folder) for one in journal.lines)
    return [one for one in lines if one.event in events]


def verdict_in(folder, **assumed):
    """Judge a folder's journals; return the failed checks and the undecided ones."""
    results = check(journals_in(folder), Settings(**assumed)).values()
    assert results
    found = [(one.check, one.evidence) for result in results for one in result.findings]
    return found, {k: v for result in results for k, v in result.unjudged.items()}


def faults_in(folder, **assumed):
    """Return each check that the journals in a folder fail, with the evidence."""
    return verdict_in(folder, **assumed)[0]
