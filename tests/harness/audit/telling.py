"""Journals written by hand, a line at a time."""

import io
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

from safeconsumer.audit.checker import Checker
from safeconsumer.audit.findings import Address, Finding
from safeconsumer.audit.results import Result, Settings
from safeconsumer.audit.stream import Joined, Part, Source


class Telling:
    """What one process did; each step takes a tenth of a second."""

    def __init__(self, member: str = "a", group: str = "g", at: float = 1000.0) -> None:
        self.at = at
        head = {"journal": 4, "member": member, "group": group, "at": at}
        self.lines = [json.dumps(head)]
        self._calls = 0
        self._polling: tuple[int, float] | None = None

    def until(self, at: float) -> Self:
        """Do nothing until this moment."""
        self.at = at
        return self

    def then(self, event: str, **fields: Any) -> Self:  # noqa: ANN401 - of any kind
        self.at = round(self.at + 0.1, 3)
        if "from_" in fields:
            fields["from"] = fields.pop("from_")
        line = {"n": len(self.lines), "at": self.at, "e": event, **fields}
        self.lines.append(json.dumps(line))
        return self

    def call(self, op: str, back: Any = None, **fields: Any) -> Self:  # noqa: ANN401 - of any kind
        self._calls += 1
        self.then("call", op=op, id=self._calls, **fields)
        return self.then("return", op=op, id=self._calls, **fields, **(back or {}))

    def pause(self, *scopes: str, owner: str = "app", **back: Any) -> Self:  # noqa: ANN401 - of any kind
        return self.call("pause", back, scopes=scopes, owner=owner)

    def resume(self, *scopes: str, owner: str = "app", **back: Any) -> Self:  # noqa: ANN401 - of any kind
        return self.call("resume", back, scopes=scopes, owner=owner)

    def assigned(self, *tps: str, generation: int = 1, **more: Any) -> Self:  # noqa: ANN401 - of any kind
        return self.then("assigned", partitions=tps, generation=generation, **more)

    def revoked(self, *tps: str, generation: int = 1) -> Self:
        return self.then("revoked", partitions=tps, generation=generation)

    def polls(self) -> Self:
        """Begin a poll, of which the next delivery is; a poll itself is not written."""
        self._polling = len(self.lines) - 1, self.at
        return self

    def poll(self, tp: str = "", start: int = 0, end: int = 0, **more: Any) -> Self:  # noqa: ANN401 - of any kind
        """Deliver the offsets from start to before end in a poll, or nothing."""
        self.at = round(self.at + 0.1, 3)
        return self.polls().deliver(tp, start, end, **more) if tp else self

    def deliver(self, tp: str, start: int, end: int, **more: Any) -> Self:  # noqa: ANN401 - of any kind
        """
        Deliver the offsets from start to before end; others if that is said.

        The broker has appended the first of them just now, if nothing else is said.
        """
        if self._polling is None:
            self.polls()
        after, asked = self._polling or (0, 0.0)
        self._polling = None
        run = {"first": start, "last": end - 1, "count": end - start}
        run |= {"after": after, "asked": asked, "written": self.at, **more}
        return self.then("deliver", tp=tp, from_=start, next=end, **run)

    def begin(self, tp: str, offset: int, lane: str | None = "", **more: Any) -> Self:  # noqa: ANN401 - of any kind
        """Have a handler begin; its id is the number of the record."""
        said = {"tp": tp, "offset": offset, "id": offset, "lane": lane, **more}
        return self.then("handle", **said)

    def begin_all(self, tp: str, *offsets: int) -> Self:
        """Have a handler begin with these records of a lane together."""
        return self.begin(tp, offsets[0], batch=offsets)

    def end(self, tp: str, *offsets: int, ok: bool = True, **more: Any) -> Self:  # noqa: ANN401 - of any kind
        """Have the handlers of these records end."""
        for offset in offsets:
            self.then("handled", tp=tp, offset=offset, id=offset, ok=ok, **more)
        return self

    def handle(self, tp: str, *offsets: int, ok: bool = True) -> Self:
        """Have these records handled, one after the other."""
        for offset in offsets:
            self.begin(tp, offset).end(tp, offset, ok=ok)
        return self

    def complete(self, tp: str, offset: int, why: str, **more: Any) -> Self:  # noqa: ANN401 - of any kind
        return self.then("completed", tp=tp, offset=offset, why=why, **more)

    def commit(self, tp: str, offset: int, **back: Any) -> Self:  # noqa: ANN401 - of any kind
        return self.call("commit", back, offsets={tp: offset})

    def journal(self) -> "Read":
        return parsed("by hand", self.text())

    def text(self) -> str:
        return "\n".join([*self.lines, ""])


class Line:
    """An entry as its journal has it, with all its fields."""

    def __init__(self, member: str, fields: dict[str, Any]) -> None:
        self.member = member
        self.number, self.at, self.event = (
            fields.pop(name) for name in ("n", "at", "e")
        )
        self.fields = fields

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - of any kind
        return self.fields.get(name)


class Read(Joined):
    """A whole journal in one file, for the judge and for a test that looks at its lines."""

    def __init__(self, name: str, data: bytes) -> None:
        super().__init__([Part(name, lambda: io.BytesIO(data))])
        self._data = data.decode(errors="replace")

    @property
    def lines(self) -> list[Line]:
        _, *lines = self._data.split("\n")[:-1]
        return [Line(self.member, json.loads(line)) for line in lines]


def parsed(name: str, text: str) -> Read:
    return Read(name, text.encode())


def read(path: Path) -> Read:
    return Read(str(path), path.read_bytes())


def check(
    journals: Iterable[Source], settings: Settings | None = None
) -> dict[Address, Result]:
    """Judge all journals together."""
    checker = Checker(settings or Settings())
    for journal in journals:
        checker.read(journal)
    return checker.results()


def findings_of(results: Mapping[Address, Result]) -> list[Finding]:
    """Return what was found, about any group and partition, of which there are some."""
    assert results
    return [one for result in results.values() for one in result.findings]
