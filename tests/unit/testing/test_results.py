import json

import pytest

from tests.harness.brokers import markers, results
from tests.harness.brokers.choice import Kind
from tests.harness.brokers.results import ResultsFile

pytest_plugins = ["pytester"]


MARKED = """
import pytest

@pytest.fixture
def kafka_broker(): return None
def test_pure(): pass
@pytest.mark.any_broker
def test_any(kafka_broker): pass
@pytest.mark.real_broker
def test_real(kafka_broker): pass
@pytest.mark.embedded_broker
def test_embedded(kafka_broker): pass
"""


class Chosen:
    """A plugin that applies the markers for one kind of broker, like the suite's conftest."""

    def __init__(self, kind):
        self._kind = kind

    def pytest_configure(self, config):
        markers.register(config)

    def pytest_collection_modifyitems(self, items):
        markers.apply(items, self._kind)


def write(path, **outcomes):
    path.write_text(json.dumps(outcomes))
    return str(path)


@pytest.mark.parametrize(
    ("kind", "run"),
    [
        (Kind.EMBEDDED, {"pure", "any", "embedded"}),
        (Kind.JAVA, {"pure", "any", "real"}),
        (Kind.BOOTSTRAP, {"pure", "any", "real"}),
    ],
)
def test_markers_select_the_tests_for_each_kind_of_broker(
    pytester, tmp_path, kind, run
):
    pytester.makepyfile(test_it=MARKED)
    file = tmp_path / "results.json"
    pytester.inline_run("--strict-markers", plugins=[Chosen(kind), ResultsFile(file)])
    outcomes = json.loads(file.read_text())
    passed = {t.split("::test_")[1] for t, o in outcomes.items() if o == "passed"}
    assert passed == run
    assert len(outcomes) == 4


def test_use_of_a_broker_without_a_marker_is_an_error(pytester):
    pytester.makepyfile(
        "import pytest\n"
        "@pytest.fixture\n"
        "def kafka_broker(): return None\n"
        "def test_it(kafka_broker): pass\n"
    )
    result = pytester.runpytest_inprocess(plugins=[Chosen(Kind.EMBEDDED)])
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*test_it uses kafka_broker without a marker*"])


LISTING = {"a": "listed", "b": "listed", "c": "listed", "d": "nightly"}


@pytest.mark.parametrize(
    ("listing", "second", "missed"),
    [
        (LISTING, {"b": "failed", "c": "xfailed"}, ""),
        (LISTING, {}, "never ran: b\nnever ran: c\n4 tests: 1 ran"),
        ({}, {}, "no test at all"),
    ],
    ids=["each test ran in some run", "two tests ran in no run", "no test is listed"],
)
def test_each_listed_test_must_have_run(tmp_path, capsys, listing, second, missed):
    first = write(tmp_path / "1", a="passed", b="skipped")
    runs = [first, write(tmp_path / "2", **second)]
    status = results.main([write(tmp_path / "0", **listing), *runs])
    assert status == bool(missed)
    assert missed in capsys.readouterr().out
