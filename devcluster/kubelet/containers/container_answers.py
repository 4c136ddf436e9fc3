"""Configured answers to logs, exec, attach and port-forward requests for simulated containers, which run nothing.

Rules are chosen as by KWOK: a rule for the pod's own name excludes all others; else the first rule that selects the pod
and has an entry for the container applies. Within a rule, an entry that names the container precedes one for all
containers. Source: KWOK's pkg/kwok/server/debugging_*.go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

import msgspec


class LogAnswer(msgspec.Struct, frozen=True):
    """Log of a container: a file or a fixed text. follows: a client that follows the file receives what is added."""

    file: Path | None = None
    previous_file: Path | None = None
    text: str | None = None
    follows: bool = True


class ExecAnswer(msgspec.Struct, frozen=True):
    """Local command that runs for an exec request, whatever the client sends.

    match: the client's command, for which alone this answer is; empty: any command.
    """

    command: tuple[str, ...]
    match: tuple[str, ...] = ()
    directory: Path | None = None
    environment: tuple[tuple[str, str], ...] = ()


class AttachAnswer(msgspec.Struct, frozen=True):
    """File whose additions an attached client receives."""

    file: Path


class PortForwardAnswer(msgspec.Struct, frozen=True):
    """Address to connect to, or a local command whose input and output are forwarded."""

    address: str = ""
    port: int = 0
    command: tuple[str, ...] = ()


Answer = TypeVar("Answer")


class Entry(msgspec.Struct, Generic[Answer], frozen=True):
    """An answer for some containers (names) or ports (numbers); for all of them if `targets` is empty."""

    answer: Answer
    targets: tuple[str | int, ...] = ()


class Rule(msgspec.Struct, Generic[Answer], frozen=True):
    """Entries for pods. name: the rule is for this pod of `namespaces[0]` only.

    namespaces, names: selected pods; an empty one selects all.
    """

    entries: tuple[Entry[Answer], ...]
    name: str = ""
    namespaces: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    def selects(self, namespace: str, pod: str) -> bool:
        return (not self.namespaces or namespace in self.namespaces) and (not self.names or pod in self.names)


class ContainerAnswers(msgspec.Struct, frozen=True):
    """All configured rules."""

    logs: Sequence[Rule[LogAnswer]] = ()
    execs: Sequence[Rule[ExecAnswer]] = ()
    attaches: Sequence[Rule[AttachAnswer]] = ()
    port_forwards: Sequence[Rule[PortForwardAnswer]] = ()

    def log(self, namespace: str, pod: str, container: str) -> LogAnswer | None:
        return _answer(self.logs, namespace, pod, container)

    def command(self, namespace: str, pod: str, container: str, requested: Sequence[str]) -> ExecAnswer | None:
        """Return the answer for an exec request; one for exactly the requested command precedes one for any."""
        command = tuple(requested)
        exact = _answer(self.execs, namespace, pod, container, lambda answer: answer.match == command)
        return exact or _answer(self.execs, namespace, pod, container, lambda answer: not answer.match)

    def attach(self, namespace: str, pod: str, container: str) -> AttachAnswer | None:
        return _answer(self.attaches, namespace, pod, container)

    def port_forward(self, namespace: str, pod: str, port: int) -> PortForwardAnswer | None:
        return _answer(self.port_forwards, namespace, pod, port)

    def forwards_ports(self, namespace: str, pod: str) -> bool:
        """Return True if a port of the pod can be forwarded."""
        return any(rule.selects(namespace, pod) and (not rule.name or rule.name == pod) for rule in self.port_forwards)


def _answer(
    rules: Sequence[Rule[Answer]],
    namespace: str,
    pod: str,
    target: str | int,
    accepts: Callable[[Answer], bool] = lambda answer: True,
) -> Answer | None:
    own = [rule for rule in rules if rule.name == pod and rule.namespaces[0] == namespace]
    for rule in own[:1] or [rule for rule in rules if not rule.name and rule.selects(namespace, pod)]:
        entries = [entry for entry in rule.entries if accepts(entry.answer)]
        named = [entry.answer for entry in entries if target in entry.targets]
        general = [entry.answer for entry in entries if not entry.targets]
        if named or general:
            return (named or general)[0]
    return None
