"""
An operator's hands: commands against a team's cluster, while its members work.
"""

import threading

from click.testing import CliRunner, Result

from safeconsumer import SafeConsumer
from safeconsumer.cli.commands import safeconsumer
from tests.group.team import Team


def run(team: Team, *arguments: str, typed: str | None = None) -> Result:
    """
    Run a command against the team's cluster and control topics.
    """
    return CliRunner().invoke(safeconsumer, [*arguments, *where(team)], input=typed)


def where(team: Team) -> list[str]:
    """
    Return the options that name a team's cluster and control topics.
    """
    settings = team.settings
    return [
        *("--bootstrap", ",".join(team.broker.client_config["bootstrap_servers"])),
        *("--operator-topic", settings.operator_topic),
        *("--group-topic", settings.group_topic),
        *("--status-topic", str(settings.status_topic)),
    ]


class Polled:
    """
    Polls a consumer on a thread of its own while a command runs.
    """

    def __init__(self, consumer: SafeConsumer) -> None:
        self._consumer = consumer
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._poll)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _poll(self) -> None:
        while not self._over.is_set():
            self._consumer.poll(50)
