"""Head sampler (OTEL_TRACES_SAMPLER) and the tail rules of --trace-tail-sampling.

Decides as the samplers of the OpenTelemetry specification do, at a fraction of their cost: it runs once per pod, on
the hot path.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Mapping
from typing import Any

import msgspec

from kubeloop.kube.user_error import UserError
from kubeloop.kube.values.durations import duration_seconds
from kubeloop.tracing.spans.traceparent import SAMPLED, TraceContext

log = logging.getLogger(__name__)

_SAMPLERS = ("always_on", "always_off", "traceidratio")
_HINT = "for example --trace-tail-sampling slower-than=2s,failed,preempted"


class TailRules(msgspec.Struct, frozen=True):
    """Rules that select traces for export although the sampler did not; evaluated when a trace ends.

    slower_than_seconds  time from creation to the end; None: no such rule
    failed               a scheduling attempt or a request failed, or the pod was never bound
    preempted            the pod preempted other pods
    """

    slower_than_seconds: float | None = None
    failed: bool = False
    preempted: bool = False

    def __bool__(self) -> bool:
        return self.slower_than_seconds is not None or self.failed or self.preempted

    def __str__(self) -> str:
        slower = [] if self.slower_than_seconds is None else [f"slower-than={self.slower_than_seconds:g}s"]
        return ",".join([*slower, *(name for name in ("failed", "preempted") if getattr(self, name))])


NO_TAIL_RULES = TailRules()


class Sampler(msgspec.Struct, frozen=True):
    """Head sampler, configured as in the OpenTelemetry specification.

    ratio         share of traces that start here and are sampled, 0 to 1
    parent_based  a trace that started elsewhere keeps the decision made there
    tail_rules    see TailRules
    enabled       False: no trace, no ID, no annotation
    """

    ratio: float = 1.0
    parent_based: bool = True
    tail_rules: TailRules = NO_TAIL_RULES
    enabled: bool = True

    def samples_root(self, trace_id: str) -> bool:
        """Return True if a trace that starts here is sampled, decided by its ID, so that all processes agree."""
        if self.ratio >= 1.0:
            return True
        return int(trace_id[16:], 16) < round(self.ratio * (1 << 64))

    def root_context(self, rng: random.Random, start_ns: int | None = None) -> TraceContext:
        """Return the context of a trace that starts here. start_ns: time that its ID begins with (see own_root_span).

        An ID of zeros is invalid; its probability of 2**-64 is accepted.
        """
        traceparent = self.root_traceparent(rng, rng.getrandbits(64) if start_ns is None else start_ns)
        return TraceContext(traceparent[3:35], traceparent[36:52], traceparent.endswith(SAMPLED))

    def root_traceparent(self, rng: random.Random, first_bits: int) -> str:
        """Return the traceparent of the root of a trace that starts here. first_bits: the first 64 bits of its ID."""
        ids = (first_bits << 128 | rng.getrandbits(128)).to_bytes(24, "big").hex("-", -16)  # faster than formatting
        sampled = self.ratio >= 1.0 or self.samples_root(ids[:32])
        return f"00-{ids}{SAMPLED if sampled else '-00'}"

    def samples_child(self, trace_id: str, sampled: bool) -> bool:
        """Return True if a trace that another process started with decision `sampled` is sampled here."""
        return sampled if self.parent_based else self.samples_root(trace_id)

    @property
    def starts_traces(self) -> bool:
        """True if a trace can start here; otherwise a pod without a trace context costs nothing."""
        return self.enabled and (self.ratio > 0.0 or bool(self.tail_rules))

    @property
    def records_traces(self) -> bool:
        """True if any trace can be recorded."""
        return self.starts_traces or (self.enabled and self.parent_based)

    def records(self, sampled: bool) -> bool:
        """Return True if a trace with the decision `sampled` is recorded; tail rules need a record of every trace."""
        return sampled or bool(self.tail_rules)

    def document(self) -> dict[str, Any]:
        """Return the JSON for /configz."""
        if not self.enabled:
            return {"sampler": "always_off", "disabled": True}
        prefix = "parentbased_" if self.parent_based else ""
        kind = {1.0: "always_on", 0.0: "always_off"}.get(self.ratio, "traceidratio")
        document: dict[str, Any] = {"sampler": f"{prefix}{kind}"}
        if kind == "traceidratio":
            document["ratio"] = self.ratio
        if self.tail_rules:
            document["tailSampling"] = str(self.tail_rules).split(",")
        return document


DISABLED_SAMPLER = Sampler(enabled=False)


def sampler_from_environment(environ: Mapping[str, str], tail_rules: TailRules = NO_TAIL_RULES) -> Sampler:
    """Read the OTEL_* variables. An invalid value is logged and replaced by the default, parentbased_always_on."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return DISABLED_SAMPLER
    name = environ.get("OTEL_TRACES_SAMPLER", "").strip().lower() or "parentbased_always_on"
    parent_based = name.startswith("parentbased_")
    kind = name.removeprefix("parentbased_")
    if kind not in _SAMPLERS:  # jaeger_remote and xray need a server, which is not supported
        log.warning("unknown OTEL_TRACES_SAMPLER, every trace is recorded", extra={"sampler": name})
        return Sampler(tail_rules=tail_rules)
    ratio = {"always_on": 1.0, "always_off": 0.0, "traceidratio": 1.0}[kind]
    if kind == "traceidratio":
        ratio = _ratio(environ.get("OTEL_TRACES_SAMPLER_ARG", "").strip() or "1.0")
    return Sampler(ratio=ratio, parent_based=parent_based, tail_rules=tail_rules)


def parse_tail_rules(text: str) -> TailRules:
    """Parse the value of --trace-tail-sampling: rules separated by commas; "" for none. Raises UserError."""
    slower_than_seconds: float | None = None
    names: set[str] = set()
    for rule in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = rule.partition("=")
        if name == "slower-than":
            slower_than_seconds = duration_seconds(value)
            if slower_than_seconds is None or slower_than_seconds < 0:
                raise UserError(f"--trace-tail-sampling: invalid duration '{value}'", hint="write 500ms, 2s or 5m")
        elif rule in ("failed", "preempted"):
            names.add(rule)
        else:
            raise UserError(f"--trace-tail-sampling: unknown rule '{rule}'", hint=_HINT)
    return TailRules(slower_than_seconds, "failed" in names, "preempted" in names)


def _ratio(argument: str) -> float:
    try:
        ratio = float(argument)
    except ValueError:
        ratio = -1.0
    if not 0.0 <= ratio <= 1.0:
        log.warning("invalid OTEL_TRACES_SAMPLER_ARG, every trace is recorded", extra={"argument": argument})
        return 1.0
    return ratio
