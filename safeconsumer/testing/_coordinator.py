"""Answers requests from group members and admin clients."""

from collections.abc import Callable, Mapping
from functools import partial

from safeconsumer.testing import _codes
from safeconsumer.testing._codes import RefusedError
from safeconsumer.testing._group import Group, GroupState
from safeconsumer.testing._members import JoinAnswer, JoinRequest, Schedule
from safeconsumer.testing._nodes import GROUP, Nodes
from safeconsumer.testing._protocol import Exchange, Fields

_STATES = {
    GroupState.EMPTY: "Empty",
    GroupState.PREPARING: "PreparingRebalance",
    GroupState.COMPLETING: "CompletingRebalance",
    GroupState.STABLE: "Stable",
}
# The first versions in which LeaveGroup names several members, JoinGroup requires a
# member id, and DescribeGroups has an error for unknown groups.
_LEAVES_SEVERAL, _REQUIRES_ID, _KNOWS_NOT_FOUND = 3, 4, 6


class Coordinator:
    """The groups of a cluster; ``on_delete`` is called with each deleted group's name."""

    def __init__(
        self, nodes: Nodes, call_later: Schedule, on_delete: Callable[[str], None]
    ) -> None:
        self._nodes, self._call_later, self._on_delete = nodes, call_later, on_delete
        self._groups: dict[str, Group] = {}
        self.handlers: Mapping[str, Callable[[Exchange], None]] = {
            "JoinGroup": self._join,
            "SyncGroup": self._sync,
            "Heartbeat": self._heartbeat,
            "LeaveGroup": self._leave,
            "ListGroups": self._list,
            "DescribeGroups": self._describe,
            "DeleteGroups": self._delete,
        }

    def group(self, name: str) -> Group:
        """Return a group; create the group if it does not exist."""
        if name not in self._groups:
            self._groups[name] = Group(self._call_later)
        return self._groups[name]

    def find(self, name: str) -> Group:
        """Return a group; if it does not exist, return an empty group without storing it."""
        return self._groups.get(name) or Group(self._call_later)

    def is_known(self, name: str) -> bool:
        """Return whether a group has ever had members or commits."""
        return name in self._groups

    def check_here(self, exchange: Exchange, group: str) -> None:
        """
        Check that the broker which received a request coordinates the group.

        Raises:
            RefusedError: another broker coordinates the group.
        """
        if self._nodes.coordinator_of(GROUP, group) != exchange.node:
            raise RefusedError(_codes.NOT_COORDINATOR)

    def unload(self, node: int) -> None:
        """Unload the groups that a stopped broker coordinates."""
        for name, group in self._groups.items():
            if self._nodes.coordinator_of(GROUP, name) == node:
                group.unload()

    def load(self) -> None:
        """Load the unloaded groups whose coordinator is up."""
        nodes = self._nodes
        for name, group in self._groups.items():
            if not group.is_loaded and nodes.is_up(nodes.coordinator_of(GROUP, name)):
                group.load()

    # Requests of members

    def _join(self, exchange: Exchange) -> None:
        body = exchange.body

        def reply(answer: JoinAnswer) -> None:
            exchange.reply(
                error_code=answer.error,
                generation_id=answer.generation,
                protocol_type=body.protocol_type,
                protocol_name=answer.protocol,
                leader=answer.leader,
                member_id=answer.member_id,
                members=[
                    {"member_id": id_, "group_instance_id": static, "metadata": data}
                    for id_, static, data in answer.members
                ],
            )

        self.check_here(exchange, body.group_id)
        # Only a new member creates a group.
        group = (
            self.find(body.group_id) if body.member_id else self.group(body.group_id)
        )
        group.join(_join_request(exchange), reply)

    def _sync(self, exchange: Exchange) -> None:
        body = exchange.body
        group = self.find(body.group_id)

        def reply(error: int, assignment: bytes) -> None:
            exchange.reply(
                error_code=error,
                protocol_type=None if error else group.protocol_type,
                protocol_name=None if error else group.protocol,
                assignment=assignment,
            )

        self.check_here(exchange, body.group_id)
        assignments = {a.member_id: bytes(a.assignment) for a in body.assignments}
        group.sync(
            body.member_id,
            body.generation_id,
            assignments,
            reply,
            body.group_instance_id,
        )

    def _heartbeat(self, exchange: Exchange) -> None:
        body = exchange.body
        self.check_here(exchange, body.group_id)
        group = self.find(body.group_id)
        error = group.heartbeat(
            body.member_id, body.generation_id, body.group_instance_id
        )
        exchange.reply(error_code=error)

    def _leave(self, exchange: Exchange) -> None:
        body = exchange.body
        self.check_here(exchange, body.group_id)
        group = self.find(body.group_id)
        if exchange.version < _LEAVES_SEVERAL:
            exchange.reply(error_code=group.leave(body.member_id))
            return
        members = [
            {
                "member_id": one.member_id,
                "group_instance_id": one.group_instance_id,
                "error_code": group.leave(one.member_id, one.group_instance_id),
            }
            for one in body.members
        ]
        exchange.reply(members=members)

    # Requests of admins

    def _list(self, exchange: Exchange) -> None:
        nodes, wanted = self._nodes, exchange.body.states_filter
        here = [
            {
                "group_id": name,
                "protocol_type": group.protocol_type,
                "group_state": _STATES[group.state],
                "group_type": "classic",
            }
            for name, group in self._groups.items()
            if nodes.coordinator_of(GROUP, name) == exchange.node
        ]
        found = [one for one in here if not wanted or one["group_state"] in wanted]
        exchange.reply(groups=found)

    def _describe(self, exchange: Exchange) -> None:
        groups = [
            {
                "group_id": name,
                **exchange.outcome(partial(self._described, exchange, name)),
            }
            for name in exchange.body.groups
        ]
        exchange.reply(groups=groups)

    def _described(self, exchange: Exchange, name: str) -> Fields:
        self.check_here(exchange, name)
        group = self._groups.get(name)
        if group is None:
            is_error = exchange.version >= _KNOWS_NOT_FOUND
            error = _codes.GROUP_ID_NOT_FOUND if is_error else _codes.NONE
            return {"error_code": error, "group_state": "Dead"}
        return {
            "group_state": _STATES[group.state],
            "protocol_type": group.protocol_type,
            "protocol_data": group.protocol,
            "members": [
                {
                    "member_id": member_id,
                    "group_instance_id": request.instance_id,
                    "client_id": request.client_id,
                    "client_host": "/127.0.0.1",
                    "member_metadata": request.protocols.get(group.protocol, b""),
                    "member_assignment": assignment,
                }
                for member_id, request, assignment in group.described()
            ],
        }

    def _delete(self, exchange: Exchange) -> None:
        def delete(name: str) -> None:
            self.check_here(exchange, name)
            if name not in self._groups:
                raise RefusedError(_codes.GROUP_ID_NOT_FOUND)
            if self._groups[name].members:
                raise RefusedError(_codes.NON_EMPTY_GROUP)
            del self._groups[name]
            self._on_delete(name)

        results = [
            {"group_id": name, **exchange.outcome(partial(delete, name))}
            for name in exchange.body.groups_names
        ]
        exchange.reply(results=results)


def _join_request(exchange: Exchange) -> JoinRequest:
    body = exchange.body
    session_ms, rebalance_ms = body.session_timeout_ms, body.rebalance_timeout_ms
    return JoinRequest(
        member_id=body.member_id,
        client_id=exchange.message.client_id or "unknown",
        instance_id=body.group_instance_id,
        session_timeout=session_ms / 1000,
        rebalance_timeout=(session_ms if rebalance_ms < 0 else rebalance_ms) / 1000,
        protocols={one.name: bytes(one.metadata) for one in body.protocols},
        is_id_required=exchange.version >= _REQUIRES_ID,
        protocol_type=body.protocol_type,
    )
