"""Status: the outcome of one plugin call. Source: k8s.io/kube-scheduler/framework of v1.36."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum


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


@dataclass(frozen=True, slots=True)
class Status:
    """Result of a plugin call. None stands for success everywhere."""

    code: Code
    reasons: tuple[str, ...] = ()
    plugin: str = ""
    error: BaseException | None = field(default=None, compare=False)

    @property
    def is_rejection(self) -> bool:
        return self.code in (Code.UNSCHEDULABLE, Code.UNSCHEDULABLE_AND_UNRESOLVABLE, Code.PENDING)

    @property
    def message(self) -> str:
        return ", ".join(self.reasons)
