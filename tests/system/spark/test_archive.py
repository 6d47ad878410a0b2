"""``safeconsumer archive`` as a user runs it."""

import json
import signal
import socket
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from attrs import evolve
from click.testing import CliRunner
from kafka import KafkaProducer

from safeconsumer import spark as safe
from safeconsumer.cli import archive
from safeconsumer.cli.commands import safeconsumer
from safeconsumer.errors import SparkRunError, SparkSettingError
from safeconsumer.holds import scope as scopes
from safeconsumer.spark import archiving
from safeconsumer.spark.archiving import Archive, Telling
from safeconsumer.spark.controller import ledger
from safeconsumer.spark.listening import Progress
from safeconsumer.spark.options import SourceOptions
from safeconsumer.spark.stream import Stream
from tests.harness.processes import logged
from tests.harness.spark import connector, sink
from tests.harness.spark.lake import LIMIT, Lake
from tests.harness.waiting import looks

PROGRAM = [sys.executable, "-m", "safeconsumer.cli.archive"]


def test_bad_settings_are_refused_before_spark_is_started() -> None:
    """Status 2, one line, what to do."""
    common = [
        "archive",
        "orders",
        "--bootstrap",
        "b:1",
        "--to",
        "a",
        "--checkpoint",
        "b",
    ]
    for more, said in (
        (["--trigger", "soon"], "--trigger must be once"),
        (["re:x"], "not both"),
        (["--option", "holds"], "NAME=VALUE"),
        (["--option", "hold.file=x"], "there is no option hold.file; the options"),
        (["--holds", "re:["], "option holds: 're:[' is not a pattern"),
        (["--control", ""], "holds.control needs holds.group"),
    ):
        done = CliRunner().invoke(safeconsumer, [*common, *more])
        assert (done.exit_code, said in done.output) == (2, True), done.output


def test_the_first_signal_asks_and_the_second_insists() -> None:
    """A Spark that does not come up may take minutes to say so."""
    before = {one: signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)}
    asked: list[bool] = []
    try:
        for name in before:
            archive._stop_by_signal(lambda: asked.append(True))
            signal.raise_signal(name)
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
    assert asked == [True, True]


class Query:
    """A query's progress, trigger by trigger."""

    def __init__(self) -> None:
        self.recentProgress: list[SimpleNamespace] = []

    def trigger(self, rows: int, hour: int = 10, **metrics: str) -> None:
        """Have one more."""
        number = len(self.recentProgress)
        progress = {
            "timestamp": f"2026-11-21T{hour:02}:00:{number:02}.000Z",
            "batchId": number,
            "numInputRows": rows,
            "sources": [{"metrics": metrics}],
        }
        self.recentProgress.append(SimpleNamespace(json=json.dumps(progress)))


def test_each_batch_is_told_and_each_change_of_what_is_held() -> None:
    """Also while nothing comes, or somebody would wonder why."""
    said: list[str] = []
    telling, query = Telling(said.append), Query()
    query.trigger(5)
    telling.look(query)
    for _ in range(3):
        query.trigger(0, held="orders:0", heldLag="7")
    telling.look(query)
    query.trigger(0, held="@all", heldBecause="no decision within 10 ms")
    query.trigger(0)
    query.trigger(3, held="orders:0", heldLag="7")
    telling.look(query)
    telling.look(query)
    assert said == [
        "batch 0: 5 rows",
        "nothing to copy; held orders:0, 7 behind",
        "nothing to copy; held @all (no decision within 10 ms)",
        "batch 6: 3 rows; held orders:0, 7 behind",
    ]


def test_the_place_of_a_progress_counts_and_not_its_time() -> None:
    """The driver's clock may go back; and a lag that grows is no other hold."""
    said: list[str] = []
    telling, query = Telling(said.append), Query()
    for hour in (10, 9):
        query.trigger(100, hour=hour)
        telling.look(query)
    for lag in (60, 61):
        query.trigger(0, held="orders:0", heldLag=str(lag))
        telling.look(query)
    assert telling.summary() == "copied 200 rows in 2 batches; held orders:0, 61 behind"
    assert said[2:] == ["nothing to copy; held orders:0, 60 behind"]


def test_a_count_of_what_spark_has_forgotten_is_at_least_that() -> None:
    """It keeps the progress of so many triggers, as the user has set it."""
    telling, query = Telling(lambda _: None, kept=1), Query()
    telling.look(query)
    query.trigger(5)
    query.trigger(5)
    del query.recentProgress[0]
    telling.look(query)
    assert telling.summary().startswith(
        "copied at least 5 rows in 1 batch (Spark keeps"
    )


def test_what_the_last_plan_left_is_said_at_the_end() -> None:
    """Spark posts no progress for a plan without data soon after a batch."""
    run = uuid4().hex
    batch = f"nightly\nid = 1\nrunId = {run}\nbatch = 1"
    own = ledger(())
    stream = Stream("1", SourceOptions(), ledgers=(own,))
    facts = {"batch": batch, "ends": "yes", "start": '{"orders":{"0":5}}'}
    facts |= {"end": '{"orders":{"0":9}}', "latest": '{"orders":{"0":9}}'}
    told: list[Any] = []
    progress = Progress((told.append,))
    listened = {"runId": run, "id": "1", "name": "nightly", "numInputRows": 5}
    progress.take({**listened, "sources": [{"metrics": {"heldPartitions": "0"}}]})
    telling = Telling(lambda _: None)
    stream.plan(facts)
    telling.end(run)
    assert telling.summary() == "copied 0 rows in 0 batches"
    own.place((scopes.Everything(),), owner="app")
    stream.freeze(facts)
    telling.end(run)
    telling.is_stopped = True
    assert telling.summary() == (
        "copied 0 rows in 0 batches; stopped, the rest comes with the next run; "
        "held orders:0, 4 behind"
    )
    progress.end(run)
    (event,) = told
    assert (event.name, event.held, event.lag) == ("spark_query_ended_held", 1, 4)


@pytest.mark.spark
@pytest.mark.real_broker
@pytest.mark.timeout(900)
class TestOnSpark:
    """The program in a process of its own."""

    def arguments(self, lake: Lake, *more: str) -> list[str]:
        topics = [lake.orders, lake.returns]
        where = ["--to", str(lake.data), "--checkpoint", str(lake.checkpoint)]
        reach = ["--bootstrap", lake.broker.bootstrap, "--master", "local[2]"]
        jars = ["--connector", str(connector.folder())]
        return [*PROGRAM, *topics, *where, *reach, *jars, *more]

    def test_it_copies_what_is_not_held_and_ends(self, lake: Lake) -> None:
        """A line per batch that names what is held; what it copied; a table on request."""
        lake.produce(lake.orders, 30)
        lake.produce(lake.returns, 30)
        held = f"{lake.orders}:1 {lake.orders}:2"
        command = self.arguments(lake, "--holds", held, "--table")
        done = subprocess.run(  # noqa: S603 - our own command line
            command, capture_output=True, text=True, timeout=LIMIT, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
        assert f"180 rows; held {lake.orders}:1-2, 60 behind" in done.stdout
        lines = [line.split() for line in done.stdout.splitlines()]
        said = f"copied 180 rows in 1 batch; held {lake.orders}:1-2, 60 behind"
        assert said.split() in lines
        assert ["topic", "partition", "rows", "first", "last"] in lines
        assert [lake.returns, "3", "30", "0", "29"] in lines
        assert [lake.orders, "1", "30", "0", "29"] not in lines

    def archived(self, lake: Lake, topics: tuple[str, ...], **options: str) -> Telling:
        """Copy what is there."""
        options["kafka.bootstrap.servers"] = lake.broker.bootstrap
        wanted = Archive(
            topics=topics,
            to=str(lake.data),
            checkpoint=str(lake.checkpoint),
            options=options,
        )
        query = archiving.start(lake.spark, wanted)
        seen = archiving.follow(query, lambda _: None, lambda: False)
        self.table = archiving.table(lake.spark, wanted)
        return seen

    def test_headers_are_copied_unless_somebody_says_otherwise(
        self, lake: Lake
    ) -> None:
        """They are a part of the record, which Spark's source leaves out by default."""
        producer = KafkaProducer(**lake.broker.client_config)
        producer.send(lake.orders, b"x", headers=[("why", b"late")]).get(10)
        producer.close()
        self.archived(lake, (lake.orders,))
        (row,) = lake.spark.read.parquet(str(lake.data)).collect()
        assert [(one.key, bytes(one.value)) for one in row.headers] == [
            ("why", b"late")
        ]
        lake.checkpoint = lake.checkpoint.with_name("another")
        lake.data = lake.data.with_name("without")
        self.archived(lake, (lake.orders,), includeheaders="false")
        assert "headers" not in lake.spark.read.parquet(str(lake.data)).columns

    def test_a_folder_is_written_with_one_checkpoint(self, lake: Lake) -> None:
        """
        Spark passes over batches of a second one that have the same numbers.

        What is refused is not lost: it is copied into a folder of its own, and the
        first checkpoint goes on where it stood.
        """
        lake.produce(lake.orders, 5)
        lake.produce(lake.returns, 5)
        self.archived(lake, (lake.orders,))
        first, data = lake.checkpoint, lake.data
        lake.checkpoint = first.with_name("another")
        for topics in ((lake.returns,), (lake.orders,)):
            with pytest.raises(SparkSettingError, match="batches up to number 0"):
                self.archived(lake, topics)
        lake.data = data.with_name("another-data")
        assert self.archived(lake, (lake.returns,)).rows == 20
        assert lake.rows() == lake.produced(lake.returns)
        lake.checkpoint, lake.data = first, data
        lake.produce(lake.orders, 5)
        assert self.archived(lake, (lake.orders,)).rows == 20
        assert lake.rows() == lake.produced(lake.orders)

    def test_topics_that_look_like_the_same_number_are_two(self, lake: Lake) -> None:
        """In the table by their names."""
        number = uuid4().int % 10**9 + 10**9
        names = (f"0{number}", f"{number}")
        for name in names:
            lake.broker.create_topic(name, lake.partitions)
            lake.produce(name, 3)
        self.archived(lake, names)
        assert sorted({(topic, rows) for topic, _, rows, *_ in self.table}) == [
            (name, 3) for name in names
        ]

    def test_everything_held_is_told_and_no_error(
        self, lake: Lake, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        Before the first batch there is nothing in the archive either.

        In the session of the tests: others begin and end one of its own.
        """
        lake.produce(lake.orders, 3)
        monkeypatch.setattr(archive, "session", lambda *_: nullcontext(lake.spark))
        monkeypatch.setattr(archive.signal, "signal", lambda *_: None)
        arguments = self.arguments(lake, "--holds", "@all", "--table")
        done = CliRunner().invoke(archive.archive, arguments[len(PROGRAM) :])
        assert done.exit_code == 0, done.output
        assert f"held {lake.orders}:0-3" in done.stdout, done.stdout
        assert "the archive is empty" in done.stdout

    def submitted(self, lake: Lake, *conf: str) -> list[str]:
        """Return the command line of spark-submit, as the README has it."""
        program = [str(Path(sys.executable).with_name("spark-submit"))]
        program += ["--master", "local[2]", "--jars", safe.jars(connector.folder())]
        program += [f"--conf={one}" for one in conf] + [archive.__file__]
        return [*program, *self.arguments(lake)[len(PROGRAM) :]]

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_it_ends_cleanly_when_it_is_told_to(
        self, lake: Lake, tmp_path: Path, number: signal.Signals
    ) -> None:
        """SIGTERM or Ctrl-C: status 0, what was copied, and what was written is whole."""
        log = tmp_path / "log"
        self.end_by_signal(lake, log, self.arguments(lake), number)
        assert "Traceback" not in log.read_text()

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_it_can_be_ended_while_spark_does_not_start(
        self, tmp_path: Path, number: signal.Signals
    ) -> None:
        """Spark waits for its master; nothing is begun that was to be ended cleanly."""
        log, folder = tmp_path / "log", str(tmp_path / "data")
        where = ["--bootstrap", "127.0.0.1:1", "--to", folder, "--checkpoint", folder]
        with socket.create_server(("127.0.0.1", 0)) as silent:
            master = f"spark://127.0.0.1:{silent.getsockname()[1]}"
            jars = ["--connector", str(connector.folder()), "--master", master]
            with logged([*PROGRAM, "orders", *where, *jars], log, {}) as program:
                silent.settimeout(LIMIT)
                asked, _ = silent.accept()
                with asked:
                    program.send_signal(number)
                    status = program.wait(30)
        if number == signal.SIGINT:
            assert (status, "interrupted" in log.read_text()) == (130, True)
        else:
            assert status == -number

    def test_what_spark_refuses_is_said_in_a_line(self, lake: Lake) -> None:
        """That the master or the folder is wrong is no defect of the command."""
        lake.produce(lake.orders, 3)
        at = self.arguments(lake).index("local[2]")
        command = self.arguments(lake)
        command[at] = "foo"
        done = subprocess.run(  # noqa: S603 - our own command line
            command, capture_output=True, text=True, timeout=LIMIT, check=False
        )
        assert done.returncode == 2, done.stderr[-3000:]
        assert "safeconsumer: Spark did not start: [JAVA_GATEWAY_EXITED]" in done.stderr
        options = {"kafka.bootstrap.servers": lake.broker.bootstrap}
        refused = {
            "nosuch://a/b": 'No FileSystem for scheme "nosuch"$',
            "/dev/null/b": "/dev/null",
        }
        for to, why in refused.items():
            wanted = Archive(
                topics=(lake.orders,),
                to=to,
                checkpoint=str(lake.checkpoint / uuid4().hex),
                options=options,
            )
            with pytest.raises(SparkRunError, match=why):
                archiving.follow(
                    archiving.start(lake.spark, wanted), str, lambda: False
                )
        with pytest.raises(SparkSettingError, match=r"no option hold\.file"):
            archiving.start(
                lake.spark, evolve(wanted, options={**options, "hold.file": "x"})
            )
        with pytest.raises(SparkRunError, match="nosuch"):
            archiving.table(lake.spark, evolve(wanted, to="nosuch://a/b"))

    def test_why_a_run_failed_is_said_to_its_end(self, lake: Lake) -> None:
        """Spark's message of lost data has lines; the last one says which partitions."""
        lake.produce(lake.orders, 3)
        lake.produce(lake.returns, 3)
        self.archived(lake, (lake.orders,))
        with pytest.raises(SparkRunError, match=f"{lake.orders}-0.* deleted") as caught:
            self.archived(lake, (lake.returns,))
        assert "failOnDataLoss" in str(caught.value)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 1000

    def test_it_ends_cleanly_where_the_signal_hits_the_jvm(
        self, lake: Lake, tmp_path: Path
    ) -> None:
        """
        Under spark-submit that is who gets it, and the JVM would end with 143.

        The jars are named to spark-submit, whose settings win over ours.
        """
        log = tmp_path / "log"
        conf = ("spark.ui.enabled=true", "spark.ui.port=0", "spark.log.level=INFO")
        self.end_by_signal(lake, log, self.submitted(lake, *conf))
        assert "'SparkUI'" in log.read_text()
        assert "INFO MicroBatchExecution" in log.read_text()

    def end_by_signal(
        self,
        lake: Lake,
        log: Path,
        command: list[str],
        number: signal.Signals = signal.SIGTERM,
    ) -> None:
        lake.produce(lake.orders, 30)
        env = {"PYTHONUNBUFFERED": "1", "PYSPARK_PYTHON": sys.executable}
        with logged([*command, "--trigger", "200ms"], log, env) as program:
            self.await_rows(program, log)
            program.send_signal(number)
            assert program.wait(LIMIT) == 0, log.read_text()[-3000:]
        assert "copied 120 rows in 1 batch" in log.read_text()
        assert lake.rows() == lake.produced()

    def await_rows(self, program: Any, log: Path) -> None:  # noqa: ANN401 - a process
        for _ in looks(
            lambda: "120 rows" in log.read_text(),
            "120 rows",
            LIMIT,
            seen=log.read_text,
        ):
            assert program.poll() is None, log.read_text()[-3000:]
            time.sleep(0.1)

    def test_a_delta_table_has_each_record_once(
        self, lake: Lake, tmp_path: Path
    ) -> None:
        """For all its readers; the jars come from the folder that --connector names."""
        if not connector.delta().is_dir():
            pytest.skip(
                f"no {connector.delta()}: python -m tests.harness.spark.connector"
            )
        jars = tmp_path / "jars"
        jars.mkdir()
        for folder in (connector.folder(), connector.delta()):
            for jar in folder.glob("*.jar"):
                (jars / jar.name).symlink_to(jar)
        lake.produce(lake.orders, 30)
        command = self.arguments(lake, "--format", "delta", "--table")
        command += ["--connector", str(jars)]
        for copied in (120, 0):
            done = subprocess.run(  # noqa: S603 - our own command line
                command, capture_output=True, text=True, timeout=LIMIT, check=False
            )
            assert done.returncode == 0, done.stderr[-3000:]
            assert f"copied {copied} rows" in done.stdout
            lines = [line.split() for line in done.stdout.splitlines()]
            assert [lake.orders, "3", "30", "0", "29"] in lines
        lake.checkpoint = lake.checkpoint.with_name("another")
        command = self.arguments(lake, "--format", "delta", "--connector", str(jars))
        done = subprocess.run(  # noqa: S603 - our own command line
            command, capture_output=True, text=True, timeout=LIMIT, check=False
        )
        assert done.returncode == 2, done.stderr[-3000:]
        assert f"has records of {lake.orders} already" in done.stderr
        assert sink.delta_rows(lake.data) == lake.produced()

    def test_delta_without_its_jars_is_refused(self, lake: Lake) -> None:
        """Before Spark is started."""
        command = self.arguments(lake, "--format", "delta", "--holds", "@all")
        done = subprocess.run(  # noqa: S603 - our own command line
            command, capture_output=True, text=True, timeout=LIMIT, check=False
        )
        assert done.returncode == 2
        assert "has no delta-*.jar" in done.stderr
