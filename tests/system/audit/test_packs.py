"""Packs, for which pyarrow is needed: the same verdict, and nothing missing unseen."""

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from safeconsumer.audit.checker import Settings
from safeconsumer.audit.journal import Entry
from safeconsumer.audit.packs import FACTS, JOURNALS, Packed, Packs, pack
from safeconsumer.audit.shared import SharedJournal
from safeconsumer.audit.stream import Joined, Lines, sources
from safeconsumer.cli.journals import papers
from safeconsumer.errors import JournalError
from safeconsumer.journal.writer import JournalWriter
from tests.harness.audit import bad
from tests.harness.audit.bad import BAD, GOOD, TP, Fleet
from tests.harness.audit.telling import Telling
from tests.harness.listing import each
from tests.unit.cli.test_audit import run, written


def packed(folder: Path, into: Path) -> Packed:
    found, troubles = sources(sorted(folder.glob("*.journal")))
    assert troubles == []
    return pack(found, into)


def polls(writer: JournalWriter, start: int, end: int) -> None:
    run = {"from": start, "next": end, "first": start, "last": end - 1}
    writer.write("deliver", {"tp": TP, **run, "count": end - start})


@each("make", [*BAD, *GOOD])
def test_what_is_packed_gives_the_same_verdict(
    tmp_path: Path, make: Callable[[], Fleet]
) -> None:
    """As the journals that it was packed from, evidence and all."""
    folder = written(tmp_path / make.__name__, make())
    expected = papers([folder]).judged(Settings())
    packed(folder, folder / "pack")
    assert papers([folder / "pack"]).judged(Settings()) == expected


def test_a_pack_lies_by_group_topic_and_partition(tmp_path: Path) -> None:
    """What an operator says of a group, and a producer of all, beside the rest."""
    reader = Telling("a", "bil/ling").assigned(TP).poll(TP, 0, 5)
    said = {"scope": "orders", "owner": "eve", "group": "bil/ling"}
    operator = Telling("o").then("group-hold", **said)
    producer = Telling("p", "").then("acked", tp=TP, first=0, last=4)
    folder = written(tmp_path / "fleet", [reader, operator, producer])
    done = run(folder, "--pack", tmp_path / "pack")
    assert (done.exit_code, done.stdout) == (0, "clean: 3 journals, 1 partition\n")
    assert "3 new, 0 extended, 0 unchanged" in done.stderr
    facts = tmp_path / "pack" / FACTS
    nothing = "__HIVE_DEFAULT_PARTITION__"
    assert {
        str(path.parent.relative_to(facts)) for path in facts.rglob("*.parquet")
    } == {
        "group=bil%2Fling/topic=orders/partition=0",
        f"group=bil%2Fling/topic={nothing}/partition={nothing}",
        f"group={nothing}/topic=orders/partition=0",
    }
    assert run(tmp_path / "pack").stdout == done.stdout


def test_packing_again_adds_what_is_new(tmp_path: Path) -> None:
    """What went on replaces what it said before; the rest is left as it is."""
    folder, pack = tmp_path / "journals", tmp_path / "pack"
    writers = [JournalWriter(folder, member=f"m{n}", group="g") for n in range(3)]
    for number, one in enumerate(writers):
        one.write("assigned", {"partitions": [f"orders:{number}"]})
    assert packed(folder, pack) == Packed(added=3)
    files = set(pack.rglob("*.parquet"))
    assert packed(folder, pack) == Packed(kept=3)
    assert set(pack.rglob("*.parquet")) == files
    polls(writers[0], 0, 5)
    JournalWriter(folder, member="new").write("assigned", {"partitions": [TP]})
    assert packed(folder, pack) == Packed(added=1, grown=1, kept=2)
    assert sum(fact.event == "deliver" for _, fact in Packs([pack]).told()) == 1
    assert sum(fact.event == "assigned" for _, fact in Packs([pack]).told()) == 4
    polls(writers[0], 7, 9)
    assert packed(folder, pack) == Packed(grown=1, kept=3)
    assert "A3" in run(pack).stdout


def test_journals_that_are_packed_may_go(tmp_path: Path) -> None:
    """Others are judged beside the pack; a journal that went on is read as it is now."""
    folder, pack = tmp_path / "journals", tmp_path / "pack"
    first = JournalWriter(folder, member="a", group="g")
    first.write("assigned", {"partitions": [TP], "generation": 1})
    polls(first, 0, 5)
    packed(folder, pack)
    said = {"op": "commit", "id": 1, "offsets": {TP: 5}}
    first.write("call", said)
    first.write("return", said)
    second = JournalWriter(folder, member="b", group="g")
    second.write("assigned", {"partitions": [TP], "generation": 2})
    polls(second, 7, 9)
    alone = run(folder)
    assert "A4" in alone.stdout
    assert run(pack, folder).stdout == alone.stdout
    assert packed(folder, pack) == Packed(added=1, grown=1)
    shutil.rmtree(folder)
    assert run(pack).stdout == alone.stdout
    shown = run(pack, "--partition", TP).stdout
    assert "  > " in shown
    assert "deliver" in shown


def test_an_older_copy_of_what_is_packed_is_passed_over(tmp_path: Path) -> None:
    """A backup of a journal before it went on: what is packed has more."""
    told = Telling("a").assigned(TP).poll(TP, 0, 5)
    backup = written(tmp_path / "backup", [told])
    told.pause("orders", assigned=[TP], paused=[TP]).poll(TP, 5, 9)
    packed(written(tmp_path / "fleet", [told]), tmp_path / "pack")
    alone = run(tmp_path / "pack")
    assert alone.exit_code == 1
    assert run(tmp_path / "pack", backup).stdout == alone.stdout
    assert run(backup, tmp_path / "pack").stdout == alone.stdout


def test_a_broken_copy_of_what_is_packed_is_said(tmp_path: Path) -> None:
    """What is packed counts all the same."""
    told = Telling("a").assigned(TP).poll(TP, 0, 5).pause("orders").poll(TP, 5, 9)
    folder = written(tmp_path / "fleet", [told])
    packed(folder, tmp_path / "pack")
    (folder / "0.journal").write_text(told.text() + "oops\n")
    done = run(tmp_path / "pack", folder)
    assert (done.exit_code, "A1" in done.stdout) == (1, True)
    assert "0.journal" in done.stderr


def test_parts_are_packed_as_one_journal(tmp_path: Path) -> None:
    """Some of them are no journal: nothing is packed, and it is said why."""
    folder, pack = tmp_path / "journals", tmp_path / "pack"
    writer = JournalWriter(folder, member="a", part_bytes=300)
    writer.write("assigned", {"partitions": [TP]})
    for number in range(20):
        polls(writer, number, number + 1)
    parts = sorted(folder.iterdir())
    assert len(parts) > 3
    assert packed(folder, pack) == Packed(added=1)
    parts[1].unlink()
    done = run(folder, "--pack", pack)
    assert done.exit_code == 2
    assert "not packed" in done.stderr
    assert run(pack).exit_code == 0


def test_a_folder_with_something_else_is_refused(tmp_path: Path) -> None:
    """Nothing is overwritten, and nothing is written into it."""
    folder = written(tmp_path / "fleet", bad.a1())
    before = sorted(folder.iterdir())
    done = run(folder, "--pack", folder)
    assert (done.exit_code, "is no pack" in done.stderr) == (1, True)
    assert "A1  orders:0" in done.stdout  # the verdict stands whatever is packed
    assert sorted(folder.iterdir()) == before


def test_a_journal_that_lost_something_is_refused(tmp_path: Path) -> None:
    """What is packed is more than that."""
    told = Telling().assigned(TP).poll(TP, 0, 5)
    folder = written(tmp_path / "fleet", [told])
    packed(folder, tmp_path / "pack")
    path = folder / "0.journal"
    path.write_text("\n".join(told.lines[:-2]) + "\n")
    with pytest.raises(JournalError, match="2 entries; 4 are packed"):
        packed(folder, tmp_path / "pack")
    assert run(tmp_path / "pack").exit_code == 0


def test_two_processes_of_one_name_are_refused(tmp_path: Path) -> None:
    told = [Telling(at=at).assigned(TP) for at in (1000.0, 2000.0)]
    folder = written(tmp_path / "fleet", told)
    done = run(folder, "--pack", tmp_path / "pack")
    assert (done.exit_code, "another journal" in done.stderr) == (2, True), done.output


@pytest.mark.parametrize("lost", ["first", "last", "twice", "index", "facts", "broken"])
def test_what_a_pack_has_lost_is_said(tmp_path: Path, lost: str) -> None:
    """Status 2, never clean."""
    folder, pack = tmp_path / "fleet", tmp_path / "pack"
    written(folder, [Telling().assigned(TP, "audit:0").poll(TP, 0, 5)])
    packed(folder, pack)
    files = sorted((pack / FACTS).rglob("*.parquet"))
    assert len(files) == 2
    (index,) = (pack / JOURNALS).iterdir()
    match lost:
        case "first" | "last":
            files[0 if lost == "first" else -1].unlink()
        case "twice":
            shutil.copy(files[0], files[0].with_name("copy.parquet"))
        case "index":
            index.unlink()
        case "facts":
            shutil.rmtree(pack / FACTS)
        case "broken":
            files[0].write_bytes(files[0].read_bytes()[:-9])
    done = run(pack)
    assert done.exit_code == 2, done.output
    assert "clean" not in done.stdout


def test_somebody_else_may_not_pack_there(tmp_path: Path) -> None:
    """Two at a time would take each other's files for leftovers."""
    folder = written(tmp_path / "fleet", bad.a1())
    found, _ = sources(sorted(folder.iterdir()))
    said: list[str] = []

    def others() -> object:
        done = run(folder, "--pack", tmp_path / "pack")
        said.append(done.stderr)
        yield from found

    pack(others(), tmp_path / "pack")  # type: ignore[arg-type]  # an iterator
    assert "another process packs into" in said[0]


KILLED = """
import os, signal, sys
from pathlib import Path
from safeconsumer.audit import packs
from safeconsumer.audit.shared import SharedJournal
from safeconsumer.audit.stream import Joined, Lines, sources

left, rename = int(sys.argv[3]), Path.rename
packs._ROWS = 10

def deadly(path, target):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return rename(path, target)

Path.rename = deadly
found, _ = sources(sorted(Path(sys.argv[1]).iterdir()))
packs.pack(found, Path(sys.argv[2]))
"""


def test_whoever_is_killed_packs_on(tmp_path: Path) -> None:
    """At any file: what is packed until then is whole, and packing again does the rest."""
    folder, pack = tmp_path / "fleet", tmp_path / "pack"
    fleet = [
        Telling(f"m{n}").assigned(f"orders:{n}", f"audit:{n}").poll(f"orders:{n}", 0, 5)
        for n in range(5)
    ]
    written(folder, fleet)
    expected = papers([folder]).judged(Settings())
    counts = []
    for step in range(1, 100, 2):
        command = [sys.executable, "-c", KILLED, str(folder), str(pack), str(step)]
        done = subprocess.run(command, check=False, capture_output=True)  # noqa: S603 - our own
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL, done.stderr
        leftovers = run(pack)  # what is there is whole, or is said not to be
        assert leftovers.exit_code in {0, 2}, leftovers.output
        counts.append(len(list((pack / JOURNALS).glob("[!.]*"))))
    assert counts == sorted(counts)
    assert counts[-1] >= 1  # what was done before the last kill was kept
    assert papers([pack]).judged(Settings()) == expected
    assert not list(pack.rglob(".*.parquet"))


def test_packs_of_several_machines_are_read_together(tmp_path: Path) -> None:
    """A2: each machine packs its own; a process that is in two counts once."""
    one = Telling("a").assigned(TP).poll(TP, 0, 5).revoked(TP)
    two = Telling("b", at=2000).assigned(TP, generation=2).poll(TP, 8, 9)
    for name, fleet in (("x", [one]), ("y", [two]), ("z", [one, two])):
        packed(written(tmp_path / name, fleet), tmp_path / f"pack-{name}")
    both = run(tmp_path / "pack-x", tmp_path / "pack-y")
    assert "nobody delivered offsets 5 to 7" in both.stdout
    assert run(*(tmp_path / f"pack-{name}" for name in "xyz")).stdout == both.stdout
    assert run(tmp_path / "pack-x").exit_code == 0


def test_facts_whose_index_is_away_are_kept(tmp_path: Path) -> None:
    """A file of the index may turn up again, and the journal itself may be gone."""
    pack, away = tmp_path / "pack", tmp_path / "away.parquet"
    folder = written(tmp_path / "one", bad.a1())
    packed(folder, pack)
    before = run(pack)
    assert before.exit_code == 1
    (index,) = (pack / JOURNALS).iterdir()
    index.rename(away)
    assert "pack again" not in run(pack).stderr
    other = Telling("other").assigned("audit:0").poll("audit:0", 0, 5)
    packed(written(tmp_path / "two", [other]), pack)
    done = run(pack)
    assert (done.exit_code, "not that it is complete" in done.stderr) == (2, True)
    away.rename(index)
    assert "A1  orders:0 of g  1 x" in run(pack).stdout
    assert run(pack).exit_code == 1
    index.unlink()
    packed(folder, pack)
    assert "A1  orders:0 of g  1 x" in run(pack).stdout


def test_a_journal_that_goes_on_while_it_is_packed_is_packed_again(
    tmp_path: Path,
) -> None:
    """What came meanwhile is not taken for packed."""

    class Living(Joined):
        @property
        def entries(self) -> Iterator[Entry]:
            yield from super().entries
            path.write_text(whole)

    (told,) = bad.a1()
    whole = told.text()
    folder = tmp_path / "fleet"
    folder.mkdir()
    path = folder / "a.journal"
    path.write_text("\n".join(told.lines[:4]) + "\n")
    pack(iter([Living([Lines(path)])]), tmp_path / "pack")
    assert run(folder, tmp_path / "pack").exit_code == 1
    assert packed(folder, tmp_path / "pack") == Packed(grown=1)
    assert run(tmp_path / "pack").exit_code == 1


def test_what_a_whole_pack_proves_is_said_beside_a_broken_one(tmp_path: Path) -> None:
    """The broken one is named, and it alone."""
    good = Telling("b").assigned("audit:0").poll("audit:0", 0, 5)
    for name, fleet in (("proves", bad.a1()), ("lacks", [good])):
        packed(written(tmp_path / f"{name}-fleet", fleet), tmp_path / name)
    next((tmp_path / "lacks" / FACTS).rglob("*.parquet")).unlink()
    done = run(tmp_path / "proves", tmp_path / "lacks")
    assert (done.exit_code, "A1  orders:0 of g  1 x" in done.stdout) == (1, True)
    assert f"{tmp_path / 'lacks'}: the pack has" in done.stderr
    assert str(tmp_path / "proves") not in done.stderr


def test_a_pack_that_is_named_twice_or_copied_counts_once(tmp_path: Path) -> None:
    """As copies of journals do."""
    pack, copy = tmp_path / "pack", tmp_path / "copy"
    packed(written(tmp_path / "fleet", bad.a1()), pack)
    shutil.copytree(pack, copy)
    expected = run(pack).stdout
    assert "A1" in expected
    assert run(pack, pack, pack / ".." / "pack").stdout == expected
    assert run(pack, copy).stdout == expected


def test_journals_in_a_folder_that_looks_like_a_pack_are_read(tmp_path: Path) -> None:
    """One with a folder "journals" in it, and a pack into which somebody laid a journal."""
    folder, pack = written(tmp_path / "fleet", bad.a1()), tmp_path / "pack"
    (folder / JOURNALS).mkdir()
    assert run(folder).exit_code == 1
    good = Telling("b").assigned("audit:0").poll("audit:0", 0, 5)
    packed(written(tmp_path / "good", [good]), pack)
    assert run(pack).exit_code == 0
    written(pack, bad.a1())
    assert run(pack).exit_code == 1


@pytest.mark.parametrize("name", ["\u8ba2" * 85, "g" * 300, "%" * 249])
def test_a_group_of_any_name_can_be_packed(tmp_path: Path, name: str) -> None:
    """The folder has as much of it as fits; another group has another folder."""
    fleet = [
        Telling(f"m{n}", group=f"{name}{n}").assigned(TP).poll(TP, 0, 5)
        for n in range(2)
    ]
    packed(written(tmp_path / "fleet", fleet), tmp_path / "pack")
    assert len(list((tmp_path / "pack" / FACTS).iterdir())) == 2
    assert run(tmp_path / "pack").stdout == run(tmp_path / "fleet").stdout


@pytest.mark.parametrize("topic", ["/../../../../x", "a\0b", "..", "t" * 250])
def test_a_topic_that_kafka_does_not_allow_is_in_no_pack(
    tmp_path: Path, topic: str
) -> None:
    """Its journal is broken, and nothing is written, inside or outside."""
    told = Telling().then("assigned", partitions=[f"{topic}:0"])
    folder = written(tmp_path / "fleet", [told])
    done = run(folder, "--pack", tmp_path / "pack")
    assert done.exit_code == 2
    assert "a list of partitions" in done.stderr
    assert not list(tmp_path.rglob("*.parquet"))


def test_each_pack_gets_what_it_lacks(tmp_path: Path) -> None:
    """Whatever another pack has that is read as evidence; and the verdict comes first."""
    folder = written(tmp_path / "fleet", bad.a1())
    one, two = tmp_path / "one", tmp_path / "two"
    packed(folder, one)
    assert "0 extended, 1 unchanged" in run(folder, one, "--pack", one).stderr
    assert "1 new" in run(folder, one, "--pack", two).stderr
    assert run(two).stdout == run(one).stdout
    (folder / "x.journal").write_text("broken\n")
    done = run(folder, "--pack", two)
    assert (done.exit_code, "A1  orders:0" in done.stdout) == (1, True)
    assert "not packed" in done.stderr
    (tmp_path / "file").write_text("")
    good = Telling().assigned(TP).poll(TP, 0, 5)
    done = run(written(tmp_path / "good", [good]), "--pack", tmp_path / "file" / "x")
    assert (done.exit_code, "cannot be written" in done.stderr) == (2, True)


@pytest.mark.parametrize("make", [bad.g2, bad.g2_of_a_command, bad.a1, bad.a2])
def test_an_excerpt_of_a_pack_shows_what_one_of_journals_does(
    tmp_path: Path, make: Callable[[], Fleet]
) -> None:
    """Operators' holds too, which are of no partition."""
    folder = written(tmp_path / "fleet", make())
    packed(folder, tmp_path / "pack")
    here = run(folder, "--partition", TP).stdout
    there = run(tmp_path / "pack", "--partition", TP).stdout
    assert marked(there) == marked(here) != []
    assert ("group-hold" in there) == make.__name__.startswith("g2")


def marked(text: str) -> list[list[str]]:
    # Up to what happened: a pack has fields in its own order, and no polls.
    return [line.split()[:4] for line in text.splitlines() if line.startswith("  >")]


@pytest.mark.parametrize("more", [0, 1, 2])
def test_a_copy_of_what_is_packed_that_went_on_by_itself_is_said(
    tmp_path: Path, more: int
) -> None:
    """An operators' journal goes on wherever it lies: packed here, and longer there."""
    here, there = tmp_path / "here.journal", tmp_path / "there.journal"
    hold(here, "returns")
    shutil.copy(here, there)
    hold(here, "returns", "returns")
    hold(there, *["orders", "orders", "orders"][: 1 + more])
    pack(sources([here])[0], tmp_path / "pack")
    member = tmp_path / "b.journal"
    member.write_text(Telling("b", at=2000).assigned(TP).poll(TP, 0, 2).text())
    said = "a journal that was copied goes on in both places"
    assert run(tmp_path / "pack", member).exit_code == 0
    done = run(tmp_path / "pack", there, member)
    assert (done.exit_code, said in done.stderr) == (2, True)
    with pytest.raises(JournalError, match=said):
        pack(sources([there])[0], tmp_path / "pack")
    pack(sources([there])[0], tmp_path / "other")
    done = run(tmp_path / "pack", tmp_path / "other", member)
    assert (done.exit_code, said in done.stderr) == (2, True)


def hold(path: Path, *scopes: str) -> None:
    said = {"owner": "eve", "group": "g", "source": "operator"}
    for scope in scopes:
        SharedJournal(path, wall=lambda: 1000.0).write(
            [("group-hold", {**said, "scope": scope})]
        )


def test_journals_of_no_partition_are_packed(tmp_path: Path) -> None:
    """That they name none is no trouble: they could be read to their ends."""
    idle = [Telling("a").then("call", op="poll", id=1)]
    done = run(written(tmp_path / "fleet", idle), "--pack", tmp_path / "pack")
    assert (done.exit_code, "not packed" in done.stderr) == (2, False)
    assert list((tmp_path / "pack").rglob("*.parquet"))
