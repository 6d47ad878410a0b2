"""How a client is started: with the interpreter of an environment of its own."""

import json
import subprocess
import sys
from pathlib import Path

from attrs import frozen

from safeconsumer.testing.cases.process import Launch
from tests.harness import environments
from tests.harness.conformance.clients import Client

_ROOT = Path(__file__).parents[3]


@frozen(kw_only=True)
class LaunchBy(Launch):
    """A launch by another interpreter than this one."""

    python: Path

    @property
    def command(self) -> list[str]:
        """The command line."""
        return [str(self.python), *super().command[1:]]


def launch_of(client: Client) -> Launch:
    """Return how a process with this client is started."""
    return LaunchBy(
        python=python_of(client),
        adapter=client.adapter,
        arguments=client.arguments,
        path=(str(_ROOT),),
    )


_VERSIONS = """
import importlib.metadata as m, json
names = "aiokafka", "confluent-kafka", "kafka-python", "safeconsumer"
found = {one.name: one.version for one in m.distributions() if one.name in names}
try:
    import confluent_kafka
    found["librdkafka"] = confluent_kafka.libversion()[0]
except ImportError:
    pass
print(json.dumps(found))
"""


def versions_of(client: Client) -> dict[str, str]:
    """Return the versions of the client and of what it stands on."""
    command = [python_of(client), "-c", _VERSIONS]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)  # noqa: S603
    found: dict[str, str] = json.loads(done.stdout)
    return found


def python_of(client: Client) -> Path:
    """Return the interpreter that has the client; the first call installs it with pip."""
    if client.needs is None:
        return Path(sys.executable)
    return environments.python_of(client.needs)
