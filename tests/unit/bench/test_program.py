"""The benchmarks' program tells how to use it where README's second command was typed."""

import subprocess
import sys

import pytest

# Of the extra ``ci``, which what is measured needs.
_WITHOUT = """
import runpy, sys
for name in ("aiokafka", "confluent_kafka", "pyspark"):
    sys.modules[name] = None
sys.argv = ["tests.bench", *sys.argv[1:]]
runpy.run_module("tests.bench", run_name="__main__")
"""


@pytest.mark.parametrize(
    "arguments", [["--help"], ["throughput", "--help"]], ids=" ".join
)
def test_its_help_needs_no_other_clients(arguments):
    command = [sys.executable, "-c", _WITHOUT, *arguments]
    ended = subprocess.run(command, capture_output=True, check=False, text=True)  # noqa: S603 - our own
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "throughput" in ended.stdout
