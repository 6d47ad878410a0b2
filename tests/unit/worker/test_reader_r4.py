"""What surprised a user of this round's changes. Each test fails today."""

import asyncio
import threading

from safeconsumer.worker.revocation import Revocation


def test_revoked_waits_by_keyword_as_before() -> None:
    """``context.revoked.wait(timeout=1)``, right until this round, raises a TypeError."""
    assert threading.Event().wait(timeout=0.01) is False
    assert Revocation().wait(timeout=0.01) is False


def test_a_task_waits_for_revoked() -> None:
    """The obvious way to wait for work *or* revocation; only ``ensure_future`` does it."""

    async def handle() -> None:
        revoked = Revocation()
        task = asyncio.create_task(revoked)  # type: ignore[arg-type]
        revoked.set()
        await task

    asyncio.run(handle())


def test_revoked_shows_its_state() -> None:
    """A printed context says nothing of it; an Event's repr says ``unset``."""
    assert "unset" in repr(Revocation()) or "False" in repr(Revocation())
