"""
Hypothesis strategies for scopes, holds, assignments and operations on them.

The strategies use few names, so that random operations affect each other.
"""

import re
import string

from hypothesis import settings
from hypothesis import strategies as st

from safeconsumer.holds import scope as scopes
from safeconsumer.holds.hold import Lifetime

# Few examples, so that this folder's tests run in a few seconds.
quick = settings(max_examples=30, deadline=None)

TOPICS = ("orders", "orders.eu", "audit")
PATTERNS = ("orders.*", "audit|orders", "(?i)AUDIT", "nothing", ".+")
OWNERS = ("app", "ops", "pump")
PARTITIONS = (
    *(("orders", number) for number in range(3)),
    ("orders.eu", 0),
    *(("audit", number) for number in range(2)),
)

partitions = st.sampled_from(PARTITIONS)
assignments = st.lists(partitions, unique=True, max_size=len(PARTITIONS))

owners = st.sampled_from(OWNERS)
lifetimes = st.sampled_from((Lifetime.UNTIL_RESUMED, Lifetime.WHILE_ASSIGNED))
reasons = st.none() | st.sampled_from(("full", "deploy"))
limits = st.none() | st.integers(min_value=1, max_value=6).map(float)


def _pattern(text):
    return scopes.pattern(re.compile(text))


single_scopes = partitions.map(lambda tp: scopes.partition(*tp))
known_scopes = st.one_of(
    single_scopes,
    st.sampled_from(TOPICS).map(scopes.topic),
    st.sampled_from(PATTERNS).map(_pattern),
    st.just(scopes.Everything()),
)

# Kafka allows all these topic names.
ODD_NAMES = ("re", "re.re", "all", "3", "0-2", "-", "--reason", "_", "...")
topic_names = st.sampled_from(ODD_NAMES) | st.text(
    string.ascii_letters + string.digits + "._-", min_size=1, max_size=249
).filter(lambda name: name not in {".", ".."})
partition_numbers = st.integers(min_value=0, max_value=2**31 - 1)
pattern_texts = st.sampled_from((*PATTERNS, *ODD_NAMES, "re:", "re:x")) | st.text(
    min_size=1, max_size=40
).map(re.escape)

any_scopes = st.one_of(
    st.builds(scopes.partition, topic_names, partition_numbers),
    topic_names.map(scopes.topic),
    pattern_texts.map(_pattern),
    st.just(scopes.Everything()),
)
