"""Members of a team that share a topic out among them."""

from tests.harness.members import Polled, has_positions, is_shared_out
from tests.harness.polling import poll_until


def settled(team, *names, plain=()):
    """Make members that share the topic out among them, and know where to read it."""
    members = [team.subscribed(name, control=team.quick) for name in names]
    members += [team.subscribed(name, control=None) for name in plain]
    with Polled(*members[1:]):
        poll_until(
            members[0],
            lambda: (
                is_shared_out(members, team.partitions)
                and all(map(has_positions, members))
            ),
        )
    return members
