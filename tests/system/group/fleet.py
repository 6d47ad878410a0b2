"""
Six members, each a process, and what they delivered that they should not have.
"""

import json
import os
import subprocess
import sys
import threading
import time
from types import TracebackType
from typing import Any, Self

from attrs import define, field

from tests.group.team import Team

LIMIT = 60.0


@define
class Process:
    """
    One member's process, and everything that it said.
    """

    name: str
    popen: "subprocess.Popen[str]"
    said: list[dict[str, Any]] = field(factory=list)
    listener: threading.Thread | None = None

    def listen(self) -> None:
        for line in self.popen.stdout or ():
            self.said.append(json.loads(line))

    def last(self, key: str) -> Any:  # noqa: ANN401 - a JSON value
        return next((one[key] for one in reversed(self.said) if key in one), None)


class Fleet:
    """
    Starts, stops and kills members of one team. A context manager: it ends them all.
    """

    def __init__(
        self,
        team: Team,
        size: int = 6,
        *,
        barrier: bool = True,
        late: float = 0.0,
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for one in self.members:
            one.popen.kill()
        for one in tuple(self.members):
            self._ended(one)

    def fill(self) -> None:
        """
        Start members until there are as many as there should be.
        """
        while len(self.members) < self._size:
            self.start()

    def start(self) -> Process:
        self._number += 1
        name = f"member-{self._number}"
        popen = subprocess.Popen(  # noqa: S603 - our own code
            [
                sys.executable,
                "-m",
                "tests.group.fleet_member",
                json.dumps({**self._options, "name": name}),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        )
        made = Process(name, popen)
        made.listener = threading.Thread(target=made.listen, daemon=True)
        made.listener.start()
        self.members.append(made)
        return made

    def stop(self, one: Process) -> None:
        """
        Let a member leave its group.
        """
        one.popen.terminate()
        self._ended(one)

    def kill(self, one: Process) -> None:
        one.popen.kill()
        self._ended(one)

    def restart_all(self) -> None:
        """
        Kill every member, and start as many again.
        """
        for one in self.members:
            one.popen.kill()
        for one in tuple(self.members):
            self._ended(one)
        self.fill()

    def _ended(self, one: Process) -> None:
        one.popen.wait(LIMIT)
        if one.listener is not None:
            one.listener.join(LIMIT)
        if one.popen.stdout is not None:
            one.popen.stdout.close()
        self.members.remove(one)
        self.past.append(one)

    # ------------------------------------------------------------ what they did

    def until(self, condition: Any, what: str, limit: float = LIMIT) -> None:  # noqa: ANN401 - a function
        deadline = time.monotonic() + limit
        while not condition():
            assert time.monotonic() < deadline, f"waited {limit:.0f} s for {what}"
            time.sleep(0.02)

    def is_settled(self) -> bool:
        """
        Tell whether the members own every partition, once each.
        """
        owned = [one.last("owned") or 0 for one in self.members]
        return sum(owned) == len(self.team.partitions) and all(
            one.last("started") for one in self.members
        )

    def is_quiet(self) -> bool:
        """
        Tell whether every partition is owned and quiet.
        """
        quiet = [one.last("quiet") or 0 for one in self.members]
        return self.is_settled() and sum(quiet) == len(self.team.partitions)

    def generations(self) -> int:
        """
        Return the newest generation that anybody told of.
        """
        everybody = [*self.members, *self.past]
        return max((one.last("generation") or 0 for one in everybody), default=0)

    def delivered(self, since: float) -> int:
        """
        Return the records delivered after a moment, whoever's they were.
        """
        return sum(
            one["records"]
            for member in (*self.members, *self.past)
            for one in tuple(member.said)
            if one.get("records") and one["at"] > since
        )

    def leaked(self, acknowledged: float) -> int:
        """
        Return the records delivered from ownerships that began after a moment.
        """
        return sum(
            one["records"]
            for member in (*self.members, *self.past)
            for one in tuple(member.said)
            if one.get("records") and one["since"] > acknowledged
        )
