"""The operator: holds of the whole group, now and then."""

import json
import math
import random
import threading
import time

from kafka.errors import KafkaError

from safeconsumer.cli.control_topics import history_since
from safeconsumer.errors import SafeConsumerError
from safeconsumer.group.history import entries, history_document, history_of
from safeconsumer.group.operator import Operator
from safeconsumer.group.publisher import changes, new_hold
from safeconsumer.group.settings import Control
from tests.system.soak.settings import GROUP

_SCOPES = ("soak-orders", "soak-returns", "re:soak-.*", "soak-audit:3")
_OWNER = "soaker"
_EVERY = (4.0, 12.0)
_FOR = (2.0, 8.0)
_REST = 1.0
_LIFTING = 120.0  # seconds to lift a hold; a broker's restart takes half of them


class Operating:
    """Places and lifts group holds until its block ends; then no hold is in force."""

    def __init__(self, settings, bootstrap):
        self._rng = random.Random(f"operator {settings.seed}")  # noqa: S311 - no secret
        self._history = settings.history
        base = {"bootstrap_servers": bootstrap.split(",")}
        self._operator = Operator(base, Control(status_topic=None))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="operator", daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join(_LIFTING)
        if self._thread.is_alive():
            message = f"a group hold could not be lifted within {_LIFTING:g} s"
            raise TimeoutError(message)

    def _run(self):
        with self._operator:
            while not self._over.wait(self._rng.uniform(*_EVERY)):
                scope = self._rng.choice(_SCOPES)
                if self._write(scope, new_hold("soak", None)):
                    self._over.wait(self._rng.uniform(*_FOR))
                while not self._write(scope, None):
                    time.sleep(_REST)
            self._write_history()

    def _write(self, scope, hold):
        try:
            self._operator.write(changes(GROUP, _OWNER, [scope], hold))
        except (KafkaError, SafeConsumerError):
            return False  # the broker may have the hold: it is lifted later
        return True

    def _write_history(self):
        now = time.time()
        self._operator.board.keep_all_records()
        self._operator.holds()
        board, settings = self._operator.board, self._operator.settings
        log = tuple(board.records)
        found = entries(history_of(log, None), 0.0, now)
        since = history_since(log, board.ends.get(settings.holds_topic))
        facts = self._operator.facts()
        document = history_document(None, facts, found, since, until=math.inf)
        self._history.write_text(json.dumps(document))
