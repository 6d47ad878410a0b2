"""The log that a test reads is its own."""

import logging
import threading

import pytest

GO, LOGGED = threading.Event(), threading.Event()


@pytest.fixture
def earlier_thread():
    """Leave a thread behind, as an earlier test may; ``caplog`` comes after it."""

    def late():
        GO.wait()
        logging.getLogger("kafka").error("of an earlier test")
        LOGGED.set()

    thread = threading.Thread(target=late)
    thread.start()
    yield
    GO.set()
    thread.join()


def test_thread_of_an_earlier_test_is_not_in_the_log(earlier_thread, caplog):
    del earlier_thread
    GO.set()
    LOGGED.wait()
    logging.getLogger("kafka").error("of this one")
    assert [one.getMessage() for one in caplog.records] == ["of this one"]
