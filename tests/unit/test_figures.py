"""Figures that README, pages and design notes name agree with where they come from."""

import re
import shlex
import tomllib
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest

from safeconsumer._kafka.installed import SUPPORTED
from safeconsumer.testing.cases.catalogue import CASES
from safeconsumer.testing.scenarios import SCENARIOS
from tests.bench.options import parser
from tests.harness.brokers.settings import USUAL_VERSION
from tests.harness.conformance.clients import CLIENTS
from tests.harness.conformance.pages import marks
from tests.harness.docs.pages import PAGES, ROOT
from tests.system.soak.report import lines, read

README = (ROOT / "README.md").read_text("utf-8")
DOCS = {page.relative_to(ROOT): page.read_text("utf-8") for page in PAGES}
NOT_PROMISED = (ROOT / "docs/explanation/not-promised.md").read_text("utf-8")
WORDS = {8: "eight", 9: "nine", 10: "ten", 11: "eleven", 12: "twelve"}

Table = list[list[str]]


def design(name: str) -> str:
    return (ROOT / "design" / name).read_text("utf-8")


def explanation(name: str) -> str:
    return DOCS[(ROOT / f"docs/explanation/{name}.md").relative_to(ROOT)]


def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    return found["project"]


def tables(text: str) -> Iterator[Table]:
    """Yield the tables of a page, without the line below the heading of each."""
    for block in re.findall(r"(?:^\|.*\n?)+", text, re.MULTILINE):
        rows = [_cells(line) for line in block.splitlines()]
        yield [rows[0], *rows[2:]]


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def marked(text: str, name: str) -> str:
    """Return what stands between the marks of that name."""
    first, last = marks(name)
    return text.partition(first)[2].partition(last)[0]


# ---------------------------------------------------------------- versions


def test_the_kafka_pythons_of_the_pages_are_those_that_are_allowed_and_tried() -> None:
    """From the lower bound to the newest that was tried."""
    assert SUPPORTED in project()["dependencies"]
    said = {
        found
        for text in DOCS.values()
        for found in re.findall(r"(3\.\d+\.\d+) to (3\.\d+\.\d+)", text)
    }
    ((first, last),) = said
    assert SUPPORTED.startswith(f"kafka-python>={first},")
    compatibility = design("compatibility.md")
    tried = re.search(
        r"^\| kafka-python ((?:3[\d.]+(?:, )?)+) \|", compatibility, re.MULTILINE
    )
    assert tried is not None
    versions = tried[1].split(", ")
    assert (versions[0], versions[-1]) == (first, last)
    workflow = (ROOT / ".github/workflows/tests.yml").read_text("utf-8")
    older = re.findall(r'upstream: "kafka-python==([\d.]+)"', workflow)
    assert [*older, last] == versions


def test_the_pythons_of_the_pages_are_those_of_the_package() -> None:
    """In its classifiers, in the table of versions, and where each is tried."""
    about = project()
    named = [
        line.rpartition(" ")[2]
        for line in about["classifiers"]
        if re.search(r":: 3\.\d+$", line)
    ]
    assert about["requires-python"] == f">={named[0]}"
    assert f"| Python | {', '.join(named)} |" in NOT_PROMISED
    for text in (README, (ROOT / "CONTRIBUTING.md").read_text("utf-8")):
        assert f"Python {named[0]} or newer" in text
    workflow = (ROOT / ".github/workflows/tests.yml").read_text("utf-8")
    quoted = ", ".join(f'"{one}"' for one in named)
    assert f"python: [{quoted}]" in workflow


def test_the_kafka_of_the_pages_is_the_one_that_is_tested() -> None:
    """In the tables of versions."""
    for text in (NOT_PROMISED, design("compatibility.md")):
        assert re.search(
            rf"^\| brokers.*Apache Kafka.*{USUAL_VERSION}", text, re.MULTILINE
        )


# ---------------------------------------------------------------- the demo


def test_the_readme_counts_the_scenarios_of_the_demo() -> None:
    """In its first lines and in what the demo prints, which is the same run."""
    count = len(SCENARIOS)
    first = README.splitlines()[3]
    assert f"`safeconsumer demo` shows {WORDS[count]} such situations" in first
    last = re.search(
        r"in (\d+) scenarios; KafkaConsumer failed in (\d+) of (\d+): "
        r"it delivered ([\d,]+) records while paused",
        README,
    )
    assert last is not None
    assert last[1] == last[3] == str(count)
    assert f"kafka-python fails in {last[2]} of {last[3]}" in first
    assert f"it delivered {last[4]} records while they were paused" in first


def test_the_readme_names_scenarios_that_there_are() -> None:
    """In the example of the command, and in the lines of its result."""
    shown = re.findall(r"^(\S+) +KafkaConsumer +\d", README, re.MULTILINE)
    assert shown
    assert {*shown, *re.findall(r"--scenario ([\w-]+)", README)} <= {
        one.name for one in SCENARIOS
    }


# ---------------------------------------------------------------- conformance


def test_the_table_of_all_cases_has_every_case_once() -> None:
    """In its part, as its rule says it."""
    shown = {
        part[0][0]: [row[0] for row in part[1:]]
        for part in tables(marked(design("conformance.md"), "table"))
    }
    expected: dict[str, list[str]] = {}
    for one in CASES.values():
        expected.setdefault(one.part, []).append(one.rule)
    assert shown == expected


def test_the_readmes_conformance_is_that_of_the_table_of_all_cases() -> None:
    """Counted anew from it, client by client; ours passes every case."""
    counted: dict[str, list[str]] = {}
    for head, *rows in tables(marked(design("conformance.md"), "table")):
        for column, client in enumerate(head[1:], 1):
            verdicts = Counter(row[column] for row in rows)
            counted.setdefault(client, []).append(_short(verdicts))
    (short,) = tables(marked(README, "conformance"))
    assert {row[0]: row[1:] for row in short[1:]} == counted
    assert set(counted) <= {one.title for one in CLIENTS.values()}
    for client in ("safeconsumer", "safeconsumer, cooperative-sticky"):
        assert all(re.fullmatch(r"(\d+) of \1", one) for one in counted[client])


def _short(verdicts: Counter[str]) -> str:
    absent, chosen = verdicts.pop("n/a", 0), verdicts["choice"]
    if not verdicts.total():
        assert absent
        return "n/a"
    by_choice = f", {chosen} by choice" if chosen else ""
    return f"{verdicts['yes']} of {verdicts.total()}{by_choice}"


def test_both_tables_of_conformance_are_of_the_same_runs() -> None:
    """The same day, machine and versions."""
    stamp = marked(README, "conformance").strip().splitlines()[-1]
    when, runs = re.fullmatch(r"(.+); (\d+) runs\.", stamp).groups()  # type: ignore[union-attr]
    conditions = marked(design("conformance.md"), "conditions").strip()
    assert conditions.startswith(f"{when}. Runs: {runs};")


def test_pages_name_the_figures_of_conformance() -> None:
    """Of confluent-kafka, of a partition that moves, and the command for as many runs."""
    counted: Counter[str] = Counter()
    for head, *rows in tables(marked(design("conformance.md"), "table")):
        counted.update(row[head.index("confluent-kafka")] for row in rows)
    counted.pop("n/a")
    of = f"{counted['yes']} of the {counted.total()} rules that it has calls for hold"
    assert of in explanation("when-not-to-use-it")
    seen = marked(design("conformance.md"), "remarks")
    for page, case in (
        ("when-not-to-use-it", "paused-before-the-first-poll"),
        ("holds-and-owners", "moves-and-returns"),
    ):
        came = re.search(rf"`{case}`:.*?(\d+) records came although", seen)
        assert came is not None
        assert re.search(rf"\b{came[1]} (\"paused\" )?records", explanation(page))
    stamp = marked(README, "conformance").strip().splitlines()[-1]
    runs = re.search(r"(\d+) runs\.$", stamp)
    assert runs is not None
    assert f"conformance --clients all --runs {runs[1]}` tries" in README


def test_the_page_about_zombies_says_what_the_scripts_print() -> None:
    """By the same scenario of the demo."""
    found = re.search(r"`forgotten_join` \|.*?(\d+) of (\d+)", design("upstream.md"))
    assert found is not None
    text = explanation("the-silent-zombie")
    assert f"{found[1]} records of {found[2]} twice" in text
    assert re.findall(r"\d+ of \d+ records", text) == []


# ---------------------------------------------------------------- benchmarks


def figures() -> Table:
    """Return the rows of the benchmarks' table, each with the command of its first line."""
    (table,) = tables(design("benchmarks.md"))
    assert table[0] == ["run", "figure", "target", "measured", "", "day"]
    rows, run = [], ""
    for row in table[1:]:
        run = row[0].strip("`") or run
        rows.append([run, *row[1:]])
    return rows


@pytest.mark.parametrize("run", sorted({row[0] for row in figures()}))
def test_a_benchmark_that_the_table_names_can_be_run(run: str) -> None:
    """With the options that it stands with."""
    name, *options = shlex.split(run)
    if options or name in {"overhead", "throughput"}:
        parser().parse_args([name, *options])
    else:
        assert find_spec(f"tests.bench.{name}") is not None


def numbers(text: str) -> list[float]:
    return [float(one.replace(",", "")) for one in re.findall(r"\d[\d,]*\.?\d*", text)]


@pytest.mark.parametrize(
    "row", figures(), ids=lambda row: f"{row[0]}: {row[1]}".replace("`", "")
)
def test_what_is_met_is_met_and_what_is_missed_is_missed(row: list[str]) -> None:
    """By the figures of its line, where one target is for all of them."""
    _, _, target, measured, verdict, _ = row
    plain = re.fullmatch(r"(<=|>=|<) ([\d.,]+)( [A-Za-z]+)?", target)
    is_plain = re.fullmatch(r"[\d.,; ]+( [A-Za-z]+)?", measured)
    if not target:
        assert not verdict
    elif plain is None or is_plain is None:
        assert verdict
    else:
        (bound,) = numbers(plain[2])
        found = [float(one) for one in re.findall(r"\d+(?:\.\d+)?", measured)]
        met = all(one >= bound if plain[1] == ">=" else one <= bound for one in found)
        assert verdict == ("met" if met else "**missed**")


def test_the_page_about_speed_says_what_was_measured() -> None:
    """From the least to the most that the table has of each way of reading."""
    wanted = {"5000": "`poll(max_records=5000)`", "500": "`poll()`", "it": "iteration"}
    measured: dict[str, list[float]] = {kind: [] for kind in wanted}
    for row in figures():
        if row[0] in {"overhead --only compiled", "throughput --targets"}:
            kind = _reading(row[1])
            if kind and row[2].startswith("<="):
                measured[kind] += map(float, re.findall(r"0\.\d+", row[3]))
    (table,) = tables(DOCS[(ROOT / "docs/explanation/speed.md").relative_to(ROOT)])
    said = {row[0]: [float(one) for one in row[1].split(" to ")] for row in table[1:]}
    for kind, name in wanted.items():
        least, most = min(measured[kind]), max(measured[kind])
        assert said[name] in ([round(least, 2), round(most, 2)], [round(least, 2)])
        assert said[name][-1] == pytest.approx(most, abs=0.01)


def _reading(figure: str) -> str | None:
    if "lz4" in figure:
        return None
    if figure.startswith("iteration"):
        return "it"
    if "5000" in figure:
        return "5000"
    return "500" if "500" in figure else None


# ---------------------------------------------------------------- the soak


def test_the_soaks_tables_are_those_of_the_raw_results() -> None:
    """Each result that is kept stands in one, and the checks add up to its violations."""
    kept = {one.name: read(one) for one in (ROOT / "design/soak").iterdir()}
    page = design("soak.md")
    sections = [
        part for part in page.split("\n## ") if re.search(r"`soak/[\w-]+\.json`", part)
    ]
    named = []
    for part in sections:
        names = re.findall(r"`soak/([\w-]+\.json)`", part)
        named += names
        for line in lines([kept[name] for name in names]):
            assert line in part.splitlines()
    assert sorted(named) == sorted(kept)
    for result in kept.values():
        assert sum(result["violations"].values()) == result["violations_total"]
        held = sum(result["delivered_while_held"].values())
        assert held == result["violations"]["A1"]
        assert sum(result["faults"].values()) == result["faults_total"]


def test_the_soaks_tables_add_up() -> None:
    """The checks to all violations, the levels to those while held, the faults to all."""
    found = [{row[0]: row[1:] for row in one[1:]} for one in tables(design("soak.md"))]
    whole = [rows for rows in found if "fault: kill" in rows]
    assert len(whole) > 1
    for rows in whole:
        for column in range(len(rows["faults"])):
            _check_sums({name: row[column] for name, row in rows.items()})


def _check_sums(cells: dict[str, str]) -> None:
    totals = {"**violations**": r"[A-Z]+\d+: ", "faults": r"fault: "}
    for start, parts in totals.items():
        (total,) = (c for name, c in cells.items() if name.partition(",")[0] == start)
        found = [cell for name, cell in cells.items() if re.match(parts, name)]
        assert sum(map(_count, found)) == _count(total), start
    held = [cell for name, cell in cells.items() if ", held by " in name]
    (while_held,) = (c for name, c in cells.items() if "delivered while held" in name)
    assert sum(map(_count, held)) == _count(while_held)


def _count(cell: str) -> int:
    found = re.match(r"[\d,]+", cell)  # a dash where a client has no such thing
    return int(found[0].replace(",", "")) if found else 0
