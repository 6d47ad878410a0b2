"""Six members, each a process, and what they delivered that they should not have."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Self

from tests.harness.group.team import Team
from tests.harness.processes import Process, module
from tests.harness.waiting import wait_for

LIMIT = 60.0


class Fleet:
    """
    Starts, stops and kills members of one team. A context manager: it ends them all.

    ``late`` delays reading the control topics by so many seconds; None: until
    :meth:`let_read` is called.
    """

    def __init__(
        self,
        team: Team,
        size: int = 6,
        *,
        barrier: bool = True,
        late: float | None = 0.0,
        cooperative: bool = False,
    ) -> None:
        self.team = team
        self.members: list[Process] = []
        self.past: list[Process] = []
        self._size = size
        self._number = 0
        settings = team.settings
        self._options = {
            "topic": team.topic,
            "group": team.group,
            "barrier": barrier,
            "late": late,
            "latest": False,
            "cooperative": cooperative,
            "client": {**team.broker.client_config, **team.broker.group_config},
            "control": {
                "operator_topic": settings.operator_topic,
                "group_topic": settings.group_topic,
                "status_topic": settings.status_topic,
                "trust_topic": settings.trust_topic,
                "client_configs": dict(settings.client_configs),
            },
        }

    def __enter__(self) -> Self:
        self.fill()
        return self

    def __exit__(self, *_: object) -> None:
        self._kill_all()

    def fill(self) -> None:
        """Start members until there are as many as there should be."""
        while len(self.members) < self._size:
            self.start()

    def start(self) -> Process:
        self._number += 1
        name = f"member-{self._number}"
        made = Process(
            module(
                "tests.system.group.fleet_member",
                json.dumps(self._options | {"name": name}),
            ),
            read=json.loads,
            log=Path(os.devnull),
        )
        self.members.append(made)
        return made

    def let_read(self) -> None:
        """Let all members read the control topics."""
        for one in self.members:
            one.tell("read")

    def stop(self, one: Process) -> None:
        """Let a member leave its group."""
        one.send_signal(signal.SIGTERM)
        assert one.wait(LIMIT), "a member did not leave"
        self._ended(one)

    def kill(self, one: Process) -> None:
        one.kill()
        self._ended(one)

    def restart_all(self) -> None:
        """Kill every member, and start as many again."""
        self._kill_all()
        self.fill()

    def _kill_all(self) -> None:
        for one in self.members:
            one.send_signal(signal.SIGKILL)
        for one in tuple(self.members):
            self.kill(one)

    def _ended(self, one: Process) -> None:
        self.members.remove(one)
        self.past.append(one)

    # ------------------------------------------------------------ what they did

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait until the members have said so."""
        wait_for(condition, what, LIMIT)

    def is_settled(self) -> bool:
        """Tell whether the members own every partition, once each."""
        owned = [one.last("owned") or 0 for one in self.members]
        return sum(owned) == len(self.team.partitions) and all(
            one.last("started") for one in self.members
        )

    def is_quiet(self) -> bool:
        """Tell whether every partition is owned and quiet."""
        quiet = [one.last("quiet") or 0 for one in self.members]
        return self.is_settled() and sum(quiet) == len(self.team.partitions)

    def generations(self) -> int:
        """Return the newest generation that anybody told of."""
        everybody = [*self.members, *self.past]
        return max((one.last("generation") or 0 for one in everybody), default=0)

    def delivered(self, since: float) -> int:
        """Return the records delivered after a moment, whoever's they were."""
        return sum(
            one["records"]
            for member in (*self.members, *self.past)
            for one in tuple(member.said)
            if one.get("records") and one["at"] > since
        )

    def leaked(self, acknowledged: float) -> int:
        """Return the records delivered from ownerships that began after a moment."""
        return sum(
            one["records"]
            for member in (*self.members, *self.past)
            for one in tuple(member.said)
            if one.get("records") and one["since"] > acknowledged
        )
