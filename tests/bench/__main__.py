"""
``python -m tests.bench NAME``: measures, and prints figures as JSON; ``--help`` has names.

``overhead`` tells what safety costs over the stock client; ``speed`` how fast all clients
read, how soon and at which cost they return what comes one by one or after a pause, which
takes some 20 minutes; ``worker`` what a worker costs over a plain poll loop, ``group`` how
soon a whole group obeys, ``members`` what one on another client costs, ``spark`` how the
Spark source stands beside the official one, and ``auditing`` how fast journals are judged.
``regressions`` compares this state of the
package with the last landed one: its exit status is 1 if something got slower or larger.
The others judge nothing.
"""

import contextlib
import importlib
import json
import os
import sys

from attrs import evolve

from safeconsumer.testing import ExistingCluster
from tests.bench import speed, states
from tests.bench.figures import measured, sentences, tell
from tests.bench.options import parsed
from tests.bench.stage import BRIEF, Sizes, Stage
from tests.harness.brokers import choice


def main():
    options = parsed(None)
    # Arms that compile our modules anew have 1 MB more, and start later.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # Only the one that is asked for: some need an extra.
    module = importlib.import_module(f"tests.bench.{options.benchmark}")
    sizes = BRIEF if options.brief else Sizes(rounds=getattr(module, "ROUNDS", 5))
    if options.rounds is not None:
        sizes = evolve(sizes, rounds=options.rounds)
    judges = options.benchmark == "regressions"
    with contextlib.ExitStack() as stack:
        arms = stack.enter_context(states.built(options.against)) if judges else {}
        broker = stack.enter_context(_broker(options.bootstrap, options.kafka))
        stage = Stage(broker=broker, sizes=sizes, states=arms)
        result = measured(stage, module.ROWS, options.only)
        stage.drop_shared()
    text = json.dumps(result, indent=1) + "\n"
    if options.json is None:
        sys.stdout.write(text)
    else:
        options.json.write_text(text, encoding="utf-8")
    if options.write:
        speed.write(result)
    if not judges:
        return 0
    tell("\n".join(sentences(result["figures"])))
    return 0 if all(one["passed"] for one in result["figures"]) else 1


def _broker(bootstrap, kind):
    if bootstrap is not None:
        return contextlib.nullcontext(ExistingCluster(bootstrap))
    return choice.start(choice.choose(kind))


if __name__ == "__main__":
    sys.exit(main())
