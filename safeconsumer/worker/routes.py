"""Calls the handler that is meant for a record's topic."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from attrs import frozen

from safeconsumer.errors import ScopeSyntaxError, WorkerSettingError
from safeconsumer.holds import scope
from safeconsumer.holds.scope import Everything, Partition, Pattern, Topic
from safeconsumer.worker.calls import is_async
from safeconsumer.worker.executors import check_kind
from safeconsumer.worker.handlers import Reject
from safeconsumer.worker.settings import check_callable, refuse_class

Handler: TypeAlias = Callable[[Any, Any], Any]


class NoHandlerError(Reject):
    """No entry of ``handlers`` covers the record's topic; as if rejected, final at once."""


@frozen
class Routes:
    """
    Several handlers by topic, called as one.

    Attributes:
        exact: handlers by the topic's name.
        others: handlers by pattern, or for all topics, in the order in which they are
            tried.
    """

    exact: Mapping[str, Handler]
    others: tuple[tuple[Pattern | Everything, Handler], ...]

    def of(self, topic: str) -> Handler | None:
        """Return the topic's handler: its own, or that of the first entry that covers it."""
        found = self.exact.get(topic)
        if found is None and self.others:
            covering = (one for where, one in self.others if where.covers((topic, 0)))
            found = next(covering, None)
        return found

    def find(self, topic: str) -> Handler:
        """
        Return the topic's handler.

        Raises:
            NoHandlerError: no entry covers the topic.
        """
        found = self.of(topic)
        if found is None:
            message = f"no entry of handlers covers the topic: {self._described()}"
            raise NoHandlerError(message)
        return found

    def refuse_uncovered(self, topics: Iterable[str]) -> None:
        """
        Refuse topics that have no handler.

        Raises:
            WorkerSettingError: the message names those that have none.
        """
        without = sorted(topic for topic in topics if self.of(topic) is None)
        if without:
            message = (
                f"handlers has nothing for {', '.join(without)}, which is consumed "
                f"here: it covers {self._described()}; add an entry, or '@all' as the "
                f"last one"
            )
            raise WorkerSettingError(message)

    def _described(self) -> str:
        return ", ".join([*self.exact, *(str(where) for where, _ in self.others)])

    def __call__(self, records: Any, context: Any) -> Any:  # noqa: ANN401, D102 - a handler
        return self.find(context.partition.topic)(records, context)


@frozen
class AsyncRoutes(Routes):
    """Several coroutine handlers by topic, called as one."""

    async def __call__(self, records: Any, context: Any) -> Any:  # noqa: ANN401, D102 - a handler
        return await self.find(context.partition.topic)(records, context)


def chosen(handle: object, handlers: object, executor: object) -> Handler:
    """
    Return the callable for every record: the handler, or the handlers as one.

    Raises:
        WorkerSettingError: not exactly one of the two is given, or one cannot be called
            by this executor, or an entry is for no topic.
    """
    if (handle is None) == (handlers is None):
        message = "give either a handler or handlers={'topic': handler}"
        raise WorkerSettingError(message)
    if handlers is None:
        one = _checked(handle, "the handler")
        check_kind(one, executor)
        return one
    if not isinstance(handlers, Mapping) or not handlers:
        message = f"handlers must name topics with their handlers, not {handlers!r}"
        raise WorkerSettingError(message)
    return _routes(handlers, executor)


def _checked(handle: object, what: str) -> Handler:
    refuse_class(handle, what)
    return check_callable(handle, what, "record", "context")


def _routes(handlers: Mapping[object, object], executor: object) -> Routes:
    exact: dict[str, Handler] = {}
    others: list[tuple[Pattern | Everything, Handler]] = []
    for name, value in handlers.items():
        one = _checked(value, f"the handler for {name!r}")
        check_kind(one, executor)
        match _scope_of(name):
            case Topic(topic):
                exact[topic] = one
            case (Pattern() | Everything()) as where:
                others.append((where, one))
    kind = AsyncRoutes if any(map(is_async, handlers.values())) else Routes
    return kind(exact, tuple(others))


def _scope_of(name: object) -> scope.Scope:
    message = (
        f"handlers need topics such as 'orders', 're:audit.*' or '@all', not {name!r}"
    )
    if not isinstance(name, str):
        raise WorkerSettingError(message)
    try:
        where = scope.parse(name)
    except ScopeSyntaxError as error:
        message += f": {error}"
        raise WorkerSettingError(message) from error
    if isinstance(where, Partition):
        raise WorkerSettingError(message)
    return where
