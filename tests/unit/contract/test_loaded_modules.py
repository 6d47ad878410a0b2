"""What importing the consumer loads beyond kafka-python: one table, so that none joins it."""

from pathlib import Path

from tests.harness.processes import ran_python

TABLE = Path(__file__).with_name("loaded_modules.txt")
_PROGRAM = """
import sys
import kafka
before = set(sys.modules) | sys.stdlib_module_names
from safeconsumer import KafkaConsumer
loaded = {name: sys.modules[name] for name in sorted(set(sys.modules) - before)}
for name, module in loaded.items():
    package = name.partition(".")[0]
    if package not in {"attr", "attrs"} and not name.endswith("._batches"):  # may be there
        print(name)
    for one in vars(module).values():
        if package == "safeconsumer" and "__attrs_attrs__" in getattr(one, "__dict__", ()):
            if one.__module__ == name:
                print(f"    {one.__name__}")
"""


def test_a_consumer_loads_these_modules_and_makes_these_attrs_classes():
    """
    Else: import it where it is used, or write what this shows into the table.

    A module costs 0.1 ms and more of each program's start, a class that attrs makes 0.3.
    """
    done = ran_python("-c", _PROGRAM, check=True)
    assert done.stdout == TABLE.read_text("utf-8")
