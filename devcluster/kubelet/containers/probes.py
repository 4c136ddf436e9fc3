"""When the probes of a simulated container succeed, and which fail by their spec alone. Pure functions.

A probe fails for certain if it executes a command that says that it fails (`/bin/false`, `exit 1`) or takes longer than
timeoutSeconds, or names a port that its container does not have. All other probes succeed. Source: pkg/kubelet/prober.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from kubeloop.devcluster.kubelet.containers.container_commands import command_end
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.field_errors import quoted
from kubeloop.kube.values.durations import duration_text


class ProbeFailure(NamedTuple):
    """First failure of a probe. seconds: from the container's start. message: of the event Unhealthy."""

    seconds: float
    message: str


class ProbePlan(NamedTuple):
    """Effects of a container's probes, in seconds from its start; infinite if they never occur.

    started, ready: as in the container's status. killed: the kubelet stops it. cause: what failed then, for the event.
    """

    started: float = 0.0
    ready: float = 0.0
    killed: float = math.inf
    cause: str = ""
    failures: tuple[ProbeFailure, ...] = ()


_NO_PROBES = ProbePlan()


def probe_plan(container: JSON, *, delays: bool, commands: bool) -> ProbePlan:
    """Return the effects of the container's probes.

    delays: probes that succeed do so after initialDelaySeconds and successThreshold; else at once. commands: those that
    are executed end as they say; else they succeed.
    """
    startup, liveness, readiness = (container.get(name) for name in ("startupProbe", "livenessProbe", "readinessProbe"))
    if startup is liveness is readiness is None:
        return _NO_PROBES
    failures: list[ProbeFailure] = []
    killed, cause = math.inf, ""
    started = _success_seconds(startup) if delays else 0.0
    problem = _problem(startup, container, commands=commands)
    if startup is not None and problem is not None:
        first, started = _initial_delay(startup), math.inf
        failures.append(ProbeFailure(first, f"Startup probe {problem.text}"))
        if problem.counts:
            killed, cause = first + _failing_seconds(startup), "failed startup probe"
    ready = max(started, _success_seconds(readiness)) if delays else started
    problem = _problem(readiness, container, commands=commands)
    if readiness is not None and problem is not None:
        ready = math.inf
        if started < math.inf:
            failures.append(ProbeFailure(max(started, _initial_delay(readiness)), f"Readiness probe {problem.text}"))
    problem = _problem(liveness, container, commands=commands)
    if liveness is not None and problem is not None and started < math.inf:
        first = max(started, _initial_delay(liveness))
        failures.append(ProbeFailure(first, f"Liveness probe {problem.text}"))
        if problem.counts:
            killed, cause = first + _failing_seconds(liveness), "failed liveness probe"
    return ProbePlan(started, ready, killed, cause, tuple(sorted(failures)))


class _Problem(NamedTuple):
    """Why a probe fails. counts: towards failureThreshold; a kubelet ignores probes that it cannot run."""

    text: str
    counts: bool


def _problem(probe: JSON | None, container: JSON, *, commands: bool) -> _Problem | None:
    if not probe:
        return None
    if "exec" in probe:
        command = probe["exec"].get("command") or ()
        end = command_end(tuple(command)) if commands else None
        timeout = probe.get("timeoutSeconds") or 1
        if end is None or (end.seconds < timeout and not end.exit_code):
            return None
        if end.seconds < timeout:
            return _Problem("failed: ", True)
        text = quoted(" ".join(command))
        return _Problem(f"failed: command timed out: {text} timed out after {duration_text(timeout)}", True)
    port = (probe.get("httpGet") or probe.get("tcpSocket") or {}).get("port")
    if not isinstance(port, str) or port.isdecimal():
        return None
    if any(entry.get("name") == port for entry in container.get("ports") or ()):
        return None
    text = f"errored and resulted in unknown state: strconv.Atoi: parsing {quoted(port)}: invalid syntax"
    return _Problem(text, False)


def _initial_delay(probe: JSON) -> float:
    return float(probe.get("initialDelaySeconds") or 0)


def _period(probe: JSON) -> float:
    return float(probe.get("periodSeconds") or 10)


def _success_seconds(probe: JSON | None) -> float:
    """Return the seconds until a probe has succeeded successThreshold times, periodSeconds apart."""
    if not probe:
        return 0.0
    return _initial_delay(probe) + (max(1, probe.get("successThreshold") or 1) - 1) * _period(probe)


def _failing_seconds(probe: JSON) -> float:
    """Return the seconds from the first failure to the one that reaches failureThreshold."""
    return (max(1, probe.get("failureThreshold") or 3) - 1) * _period(probe)
