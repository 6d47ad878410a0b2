"""How long a wait takes: everything that the command does counts."""

from types import SimpleNamespace

from click.testing import CliRunner
from kafka.errors import KafkaTimeoutError

from safeconsumer.cli import connection, waiting, watching
from safeconsumer.cli.commands import safeconsumer
from safeconsumer.cli.errors import Status
from safeconsumer.group.operator import Operator
from tests.unit.group.test_judging import picture


def test_the_login_is_in_the_time(monkeypatch):
    """On a broker that accepts and is silent a wait of 5 s took 9 s."""
    passed = [100.0]
    looks = []

    def pass_(seconds):
        passed[0] += seconds

    def look(_, group, *, timeout, has_lags):
        assert not has_lags
        looks.append(timeout)
        pass_(timeout)
        raise KafkaTimeoutError(group)

    clock = SimpleNamespace(monotonic=lambda: passed[0], sleep=pass_)
    for module in (waiting, watching):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(connection, "_check_login", lambda _: pass_(2.0))
    monkeypatch.setattr(Operator, "look", look)
    asked = ("wait", "quiet", "--group", "g", "--timeout", "5s", "--bootstrap", "b:1")
    ended = CliRunner().invoke(safeconsumer, asked)
    assert (ended.exit_code, ended.stderr.count("\n")) == (Status.UNREACHABLE, 1)
    assert (looks, passed) == ([3.0], [105.0])


def test_a_wait_for_what_can_no_longer_be_ends_at_once(monkeypatch):
    """``pause --wait`` waited a minute for a hold that somebody had lifted."""
    passed = [100.0]

    def look(*_, **__):
        passed[0] += 0.5
        return picture()

    def judge(_):
        message = "lifted meanwhile"
        raise waiting.InVainError(message)

    def sleep(seconds):
        passed[0] += seconds

    clock = SimpleNamespace(monotonic=lambda: passed[0], sleep=sleep)
    monkeypatch.setattr(waiting, "time", clock)
    operator = SimpleNamespace(look=look)
    ended = waiting.wait_until(operator, "g", judge, 60.0)
    assert (ended.is_reached, ended.sentence) == (False, "lifted meanwhile")
    assert ended.waited == 0.5
