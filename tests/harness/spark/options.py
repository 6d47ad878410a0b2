"""Implements the marker of the Spark tests; ``tests/conftest.py`` calls these hooks."""

import shutil
from importlib.util import find_spec

import pytest

from tests.harness.spark import connector

_MEANING = "spark(since): needs Java, Spark's connector and at least this pyspark"


def pytest_configure(config):
    config.addinivalue_line("markers", _MEANING)


def pytest_collection_modifyitems(config, items):
    """
    Skip the Spark tests if a requirement is missing; the reason names the requirement.

    A test that needs a newer Spark than the installed one is deselected. It runs on the
    days on which CI tests such a version.
    """
    _leave_out(config, items)
    marked = [item for item in items if item.get_closest_marker("spark")]
    missing = _missing() if marked else None
    if missing is None:
        return
    if config.option.kafka == "java" and find_spec("pyspark") is not None:
        msg = f"--kafka=java and pyspark is installed, but {missing}"
        raise pytest.UsageError(msg)
    for item in marked:
        item.add_marker(pytest.mark.skip(reason=missing))


def _leave_out(config, items):
    if find_spec("pyspark") is None:
        return
    installed = _line(connector.version())
    early = [one for one in items if _line(_since(one)) > installed]
    if early:
        config.hook.pytest_deselected(items=early)
        items[:] = [one for one in items if one not in early]


def _since(item):
    mark = item.get_closest_marker("spark")
    return "0.0" if mark is None else mark.kwargs.get("since", "0.0")


def _line(version):
    major, minor, *_ = version.split(".")
    return int(major), int(minor)


def _missing():
    if find_spec("pyspark") is None or find_spec("pyarrow") is None:
        return "no pyspark or pyarrow: pip install '.[test,spark]' 'pyspark<4.3' 'pandas<3'"
    if shutil.which("java") is None:
        return "no java in PATH"
    if not connector.folder().is_dir():
        return (
            "no connector for Spark: python -m tests.harness.spark.connector fetches it"
        )
    return None
