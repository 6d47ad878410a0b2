"""Which Spark's tests a run has: one Spark is installed, and each has its day."""

from types import SimpleNamespace

import pytest

from tests.harness.spark import options


def item(**since):
    mark = pytest.mark.spark(**since).mark
    return SimpleNamespace(get_closest_marker=lambda _: mark)


@pytest.mark.parametrize(
    ("installed", "count"), [("3.5.7", 1), ("4.1.2", 1), ("4.2.0", 2), ("4.10.0", 2)]
)
def test_a_test_of_a_newer_spark_is_left_out_and_not_skipped(
    monkeypatch, installed, count
):
    """Such a test is not listed either: each listed test must run somewhere."""
    monkeypatch.setattr(options, "find_spec", lambda _: True)
    monkeypatch.setattr(options.connector, "version", lambda: installed)
    left_out = []
    hook = SimpleNamespace(pytest_deselected=lambda *, items: left_out.extend(items))
    items = [item(since="4.2"), item()]
    options._leave_out(SimpleNamespace(hook=hook), items)
    assert len(items) == count
    assert len(left_out) == 2 - count
