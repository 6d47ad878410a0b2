"""``python -m tests.bench regressions``: what got slower since a commit."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.regressions import CLEAN, ROWS, UNTOLD, WORSE, Rounds, Verdict

_ROOT = Path(__file__).parents[2]


def _rounds(now: float, again: float = 1.0) -> Rounds:
    return [{"now": [now] * 3, "then": [1.0] * 3, "then, again": [again] * 3}]


@pytest.mark.parametrize(
    ("rounds", "status"),
    [
        (_rounds(1.0), CLEAN),
        (_rounds(0.5), CLEAN),
        (_rounds(1.02), CLEAN),  # three hundredths are no news
        (_rounds(1.04), WORSE),
        (_rounds(1.04, again=1.05), CLEAN),  # less than the noise
        (_rounds(1.04, again=0.95), CLEAN),
        (_rounds(1.1, again=1.2), UNTOLD),
        (_rounds(1.3, again=1.2), WORSE),
        (_rounds(1.04) + _rounds(1.04, again=1.05), CLEAN),  # the worst round counts
    ],
)
def test_worse_is_what_is_beyond_the_noise(rounds: Rounds, status: int) -> None:
    """Noise is what two arms of the same commit differ by."""
    verdict = Verdict.of("poll-500", rounds)
    assert verdict.status == status
    passed = {CLEAN: True, WORSE: False, UNTOLD: None}
    assert verdict.figure().passed is passed[status]


def _bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - our own module
        [sys.executable, "-m", "tests.bench", "regressions", *arguments],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        timeout=280.0,
        check=False,
    )


@pytest.fixture(scope="module")
def commit() -> str:
    """Name this commit; there is none where the tests run from an sdist."""
    done = subprocess.run(
        ["git", "rev-parse", "HEAD"],  # noqa: S607 - any git
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip("needs a clone")
    return done.stdout.strip()


@pytest.mark.embedded_broker  # once is enough
@pytest.mark.timeout(300)
def test_every_row_is_measured_against_a_commit(tmp_path: Path, commit: str) -> None:
    """The smoke sizes prove nothing, so any of its three exit statuses may come of it."""
    path = tmp_path / "figures.json"
    done = _bench(
        "--against", commit, "--smoke", "--kafka=embedded", "--json", str(path)
    )
    assert done.returncode in {CLEAN, WORSE, UNTOLD}, done.stderr
    result = json.loads(path.read_text(encoding="utf-8"))
    assert [one["row"] for one in result["figures"]] == list(ROWS)
    assert all(len(one["rounds"]) == 3 for one in result["figures"])
    assert result["against"] == commit
    is_worse = any(one["passed"] is False for one in result["figures"])
    assert is_worse == (done.returncode == WORSE)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--kafka=embedded"], "--against: which commit?"),
        (
            ["--against", "no-such-commit", "--kafka=embedded"],
            "git knows no commit 'no-such-commit'",
        ),
    ],
)
def test_without_a_commit_it_says_so(
    arguments: list[str], said: str, commit: str
) -> None:
    """As a wrong use: nothing was measured."""
    del commit  # only that this is a clone
    done = _bench(*arguments)
    assert done.returncode == 2
    assert said in done.stderr.splitlines()[-1]
