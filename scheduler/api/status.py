"""Status: the outcome of one plugin call. Source: k8s.io/kube-scheduler/framework of v1.36."""

from __future__ import annotations

from enum import IntEnum

import msgspec


class PluginFailure(Exception):
    """Failure of a plugin that an object of the cluster causes, such as an invalid selector.

    The scheduling attempt ends with an error, as for other exceptions, but it is logged without a traceback.
    """


class Code(IntEnum):
    """Outcome of one plugin call."""

    SUCCESS = 0
    ERROR = 1
    UNSCHEDULABLE = 2
    UNSCHEDULABLE_AND_UNRESOLVABLE = 3  # preemption cannot help
    WAIT = 4
    SKIP = 5
    PENDING = 6

    @property
    def api_name(self) -> str:
        """The name that Kubernetes prints: "UnschedulableAndUnresolvable"."""
        return _API_NAMES[self.value]


_API_NAMES = ["".join(word.capitalize() for word in code.name.split("_")) for code in Code]  # by value


class Status(msgspec.Struct, frozen=True, eq=False):
    """Result of a plugin call. None stands for success everywhere. Statuses that differ in `error` only are equal."""

    code: Code
    reasons: tuple[str, ...] = ()
    plugin: str = ""
    error: BaseException | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Status) and self._compared == other._compared

    def __hash__(self) -> int:
        return hash(self._compared)

    @property
    def _compared(self) -> tuple[Code, tuple[str, ...], str]:
        return self.code, self.reasons, self.plugin

    @property
    def is_rejection(self) -> bool:
        return self.code in (Code.UNSCHEDULABLE, Code.UNSCHEDULABLE_AND_UNRESOLVABLE, Code.PENDING)

    @property
    def message(self) -> str:
        return ", ".join(self.reasons)
