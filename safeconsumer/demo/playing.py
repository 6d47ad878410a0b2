"""Plays one scenario with several clients at the same time."""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from safeconsumer.demo.clients import Client
from safeconsumer.demo.results import (
    CancelledError,
    CannotPlayError,
    EvictedError,
    Progress,
    Result,
)
from safeconsumer.demo.situations import Scenario
from safeconsumer.demo.stage import Setting, Stage
from safeconsumer.demo.tally import Tally


def play(scenario: Scenario, client: Client, setting: Setting) -> Result:
    """
    Play a scenario with one client and say what became of the records.

    A play that cannot be finished is played once more, and the progress says why:
    a machine that stands still for some seconds costs a member its membership.

    Raises:
        CancelledError: it was asked to stop; everything is closed.
    """
    result = _play_once(scenario, client, setting)
    if result.error is None:
        return result
    step = f"played again, the first time ended early: {result.error}"
    setting.report(
        Progress(scenario=scenario.name, client=client.name, step=step, partitions=())
    )
    return _play_once(scenario, client, setting)


def _play_once(scenario: Scenario, client: Client, setting: Setting) -> Result:
    began = time.monotonic()
    error = None
    is_evicted = False
    tally = Tally()
    try:
        with Stage(scenario.name, client, setting, tally) as stage:
            try:
                scenario.play(stage)
            finally:
                is_evicted = stage.is_evicted and not scenario.evicts
            if is_evicted:
                raise EvictedError  # noqa: TRY301 - what is waited for may be in vain, too
    except CancelledError:
        raise
    except CannotPlayError as caught:
        error = str(caught)
    except Exception as caught:  # noqa: BLE001 - it is the result of this play
        error = f"{type(caught).__name__}: {caught}"
    seconds = time.monotonic() - began
    return Result(
        scenario=scenario.name,
        client=client.name,
        counts=tally.counts(),
        seconds=round(seconds, 1),
        error=error,
        is_evicted=is_evicted,
    )


def play_side_by_side(
    scenario: Scenario, clients: Sequence[Client], setting: Setting
) -> tuple[Result, ...]:
    """
    Play a scenario with every client at once; results come in the clients' order.

    However it ends, every consumer is closed when it does. If one client's play
    fails, or the caller is interrupted, the others are asked to stop.
    """
    with ThreadPoolExecutor(len(clients), thread_name_prefix="scenario") as pool:
        plays = [pool.submit(play, scenario, client, setting) for client in clients]
        try:
            return tuple(one.result() for one in plays)
        except BaseException:
            setting.cancelled.set()
            raise
