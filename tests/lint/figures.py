"""Finds versions, counts and tables on pages that do not match the code or the settings."""

import re
import shlex
import tomllib
from importlib.util import find_spec

from safeconsumer._kafka.installed import SUPPORTED
from safeconsumer.demo.situations import SITUATIONS
from tests.bench.__main__ import parsed
from tests.harness.brokers.settings import USUAL_VERSION
from tests.harness.docs.pages import PAGES, ROOT
from tests.harness.spark.connector import newest
from tests.harness.testing.catalogue import CASES
from tests.harness.trying import NOT_ABOUT_PAUSING, STOCK

_COUNTS = {4: "four", 5: "five", 6: "six"}


def findings():
    """Yield a fault for each version, count and table that does not match its source."""
    yield from _pythons()
    yield from _kafkas()
    yield from _sparks()
    yield from _demo()
    yield from _cases()
    yield from _benchmarks()


def _read(name):
    return (ROOT / name).read_text("utf-8")


def _pythons():
    project = tomllib.loads(_read("pyproject.toml"))["project"]
    classified = re.findall(
        r":: (3\.\d+)$", "\n".join(project["classifiers"]), re.MULTILINE
    )
    first = classified[0]
    quoted = ", ".join(f'"{one}"' for one in classified)
    for file, text in (
        ("pyproject.toml", f'requires-python = ">={first}"'),
        ("pyproject.toml", f'"{SUPPORTED}"'),
        ("docs/explanation/not-promised.md", f"| Python | {', '.join(classified)} |"),
        ("README.md", f"Python {first} or newer"),
        ("CONTRIBUTING.md", f"Python {first} or newer"),
        (".github/workflows/tests.yml", f"python: [{quoted}]"),
    ):
        if text not in _read(file):
            yield f"{file}: lacks {text!r}"


def _kafkas():
    for page in PAGES:
        text = page.read_text("utf-8")
        for image in re.findall(r"apache/kafka:([\d.]+)", text):
            if image != USUAL_VERSION:
                yield f"{_name(page)}: Kafka {image}, tested is {USUAL_VERSION}"
        for first in re.findall(r"(3\.\d+\.\d+) to 3\.\d+\.\d+", text):
            if not SUPPORTED.startswith(f"kafka-python>={first},"):
                yield f"{_name(page)}: kafka-python from {first}, not {SUPPORTED}"
    for file in ("docs/explanation/not-promised.md", "design/releases.md"):
        if not re.search(
            rf"^\| brokers.*Kafka {USUAL_VERSION}", _read(file), re.MULTILINE
        ):
            yield f"{file}: lacks Kafka {USUAL_VERSION} among the brokers"


def _sparks():
    for page in (*PAGES, ROOT / "CONTRIBUTING.md"):
        for pinned in re.findall(r"pyspark==([\d.]+\d)", page.read_text("utf-8")):
            if pinned != newest():
                yield f"{_name(page)}: pyspark {pinned}, the newest tested is {newest()}"


def _name(page):
    return str(page.relative_to(ROOT))


def _demo():
    readme = _read("README.md")
    counted = [one.name for one in SITUATIONS if one.is_counted]
    rows = re.findall(
        r"^\| `([\w-]+)`: .+ \| (\d+), (\d+) \| 0, 0 \|$", readme, re.MULTILINE
    )
    if [name for name, *_ in rows] != counted:
        yield f"README.md: the rows of the demo's table are not {counted}"
    if not all(int(leaked) or int(lost) for _, leaked, lost in rows):
        yield "README.md: a row in which kafka-python does not fail"
    others = [one.name for one in SITUATIONS if not one.is_counted]
    count = _COUNTS[len(counted)]
    sentence = f"shows these {count} cases, a killed worker and a held group"
    if others != ["worker", "group"] or sentence not in readme:
        yield f"README.md: lacks {sentence!r}, or the demo has others than {others}"


def _cases():
    for name, case in CASES.items():
        text = " ".join((case.run.__doc__ or "").split())
        passes = "kafka-python 3.0 passes" in text
        if "kafka-python" not in text:
            yield f"case {name}: does not say what kafka-python does"
        elif name not in NOT_ABOUT_PAUSING and passes == (name in STOCK):
            yield f"case {name}: says otherwise of kafka-python than expected.py"
    yield from (f"conformance: there is no case {one}" for one in STOCK.keys() - CASES)


def _benchmarks():
    for run in re.findall(
        r"^\| `([^`]+)` \|", _read("design/benchmarks.md"), re.MULTILINE
    ):
        name, *options = shlex.split(run)
        if not options and find_spec(f"tests.bench.{name}") is not None:
            continue
        try:
            parsed([name, *options])
        except SystemExit:
            yield f"design/benchmarks.md: `python -m tests.bench {run}` is refused"
