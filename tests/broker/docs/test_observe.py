"""``docs/examples/observe.py`` sees what kafka-python leaks, and changes nothing."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from safeconsumer.testing import EmbeddedBroker
from tests.harness.docs.pages import ROOT
from tests.harness.environments import python_of

_PROGRAM = Path(__file__).with_name("observed.py")


def _played(python, broker):
    command = [python, _PROGRAM, broker.bootstrap]
    ended = subprocess.run(  # noqa: S603 - our own program
        [str(one) for one in command],
        env={"PYTHONPATH": str(ROOT / "docs" / "examples")},
        capture_output=True,
        check=False,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def _judge(said):
    assert said["paused"] == {"counted": 0, "came": 0}
    assert said["leaked"] == {"counted": 5, "came": 5}
    assert said["iterated"] == {"counted": 10, "came": 5}
    assert said["resumed"] == {"counted": 10, "came": 5}
    assert said["lines"] == 1


def test_with_the_version_that_is_installed():
    """What leaks through a lost ownership is counted, by poll and by iteration."""
    with EmbeddedBroker() as broker:
        _judge(_played(Path(sys.executable), broker))


@pytest.mark.nightly
@pytest.mark.parametrize("version", ["2.3.3", "2.3.0"])
def test_with_versions_of_before(version):
    """Programs that are not on 3.0 yet are those that need it."""
    with EmbeddedBroker() as broker:
        _judge(_played(python_of(f"kafka-python=={version}"), broker))
