"""
A partition is taken away while a coroutine that awaited it is cancelled.

``Revocation.set`` looks whether a wait is left, and then takes it, in two steps. The loop's
thread may have removed it in between: IndexError, under the lock of ``Held``, in the
polling thread, which ends the worker with a half closed epoch.
"""

import asyncio
import sys
import threading

from safeconsumer.worker.revocation import Revocation


def test_a_coroutine_that_is_cancelled_while_the_event_is_set_breaks_nothing():
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    revoked, raised = Revocation(), list[BaseException]()

    async def begin():
        tasks = [asyncio.ensure_future(revoked._until_set()) for _ in range(2)]
        await asyncio.sleep(0)
        return tasks

    async def cancel(task):
        task.cancel()
        await asyncio.wait([task])

    tasks = asyncio.run_coroutine_threadsafe(begin(), loop).result(10)
    assert len(revoked._waiting) == 2

    def trace(frame, event, _arg):
        # A switch to the loop's thread after "while self._waiting", where one is left.
        code = frame.f_code
        if code is Revocation.set.__code__:
            line = frame.f_lineno - code.co_firstlineno
            if event == "line" and line == 4 and len(revoked._waiting) == 1:
                asyncio.run_coroutine_threadsafe(cancel(tasks[0]), loop).result(10)
        return trace

    def revoke():
        sys.settrace(trace)
        try:
            revoked.set()
        except IndexError as error:
            raised.append(error)
        finally:
            sys.settrace(None)

    poll = threading.Thread(target=revoke)
    poll.start()
    poll.join(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()
    assert raised == []


def test_a_thread_waits_for_it_as_for_an_event():
    revoked = Revocation()
    assert revoked.wait(timeout=0.0) is False
    assert "unset" in repr(revoked)
    revoked.set()
    assert revoked.wait(timeout=0.0) is True
    assert "unset" not in repr(revoked)
