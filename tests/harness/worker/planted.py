"""Plants faults in a worker; the audit must detect each of them."""

from safeconsumer.worker.client import ConsumerClient
from safeconsumer.worker.partition import Epoch
from safeconsumer.worker.progress import Watermark
from safeconsumer.worker.queue import Queue


def commits_too_far(patch):
    """Make the worker commit beyond a record whose handler is still running."""
    commit_soon = ConsumerClient.commit_soon

    def further(client, marks, then):
        beyond = {tp: Watermark(mark.offset + 1) for tp, mark in marks.items()}
        commit_soon(client, beyond, then)

    patch.setattr(ConsumerClient, "commit_soon", further)
    return "W4"


def keeps_no_order(patch):
    """Make the worker start a second task of a lane while the first one is still running."""
    note = Queue._note

    def note_and_go_on(queue, task):
        if task.lane:
            queue._make_ready(task.lane)
        return note(queue, task)

    patch.setattr(Queue, "_note", note_and_go_on)
    return "W7"


def ignores_holds(patch):
    """Make the worker start handlers for held records, too."""
    never = property(lambda _: False, lambda *_: None)
    patch.setattr(Epoch, "is_held", never)
    return "W10"


PLANTS = (commits_too_far, keeps_no_order, ignores_holds)
