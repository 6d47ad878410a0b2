"""The outcomes of one or more runs, and what they agree on."""

import datetime as dt
import os
import platform
from collections.abc import Iterable
from typing import Any

from attrs import Factory, frozen

from tests.harness.conformance.outcomes import Outcome, Verdict
from tests.harness.conformance.run import Tried


@frozen(kw_only=True)
class Results:
    tried: tuple[Tried, ...]  # each client, in each run, in the order of the runs
    broker: str  # what it ran against
    # when it ended, ISO 8601
    date: str = Factory(lambda: dt.datetime.now(dt.UTC).isoformat(timespec="minutes"))

    def cell(self, case: str, client: str) -> list[Outcome]:
        """Return what the runs say of this client in this case, one after the other."""
        return [one for one in self._all() if (one.case, one.client) == (case, client)]

    def verdict(self, case: str, client: str) -> Verdict | None:
        """Return what all runs say, None if they do not agree."""
        found = {one.verdict for one in self.cell(case, client)}
        return found.pop() if len(found) == 1 else None

    def cases(self) -> list[str]:
        """Return the cases that were tried, in their order."""
        return list(dict.fromkeys(one.case for one in self._all()))

    def clients(self) -> list[str]:
        """Return the clients that were tried, in their order."""
        return list(dict.fromkeys(one.client for one in self.tried))

    def versions(self, client: str) -> dict[str, str]:
        """Return the distributions of a client, with their versions."""
        return next(one.versions for one in self.tried if one.client == client)

    @property
    def runs(self) -> int:
        """How often each client was tried."""
        return sum(one.client == self.clients()[0] for one in self.tried)

    def differing(self) -> list[tuple[str, str]]:
        """Return the cases and clients of which the runs say different things."""
        return [
            (case, client)
            for case in self.cases()
            for client in self.clients()
            if self.verdict(case, client) is None
        ]

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON values; nothing names the machine."""
        return {
            "date": self.date,
            "machine": {
                "cores": os.cpu_count(),
                "system": platform.system(),
                "architecture": platform.machine(),
                "python": platform.python_version(),
            },
            "broker": self.broker,
            "versions": {one: self.versions(one) for one in self.clients()},
            "outcomes": [one.as_dict() for one in self._all()],
        }

    def _all(self) -> Iterable[Outcome]:
        return (one for tried in self.tried for one in tried.outcomes)
