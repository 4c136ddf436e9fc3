"""Which traces are recorded and which are kept: OTEL_TRACES_SAMPLER when they begin, tail rules when they end.

Decides as the samplers of the OpenTelemetry specification do, at a fraction of their cost: once per pod, on the hot
path. May import `durations` and `errors` of `kubeloop.kube`, and this room.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import msgspec

from kubeloop.kube.durations import duration_seconds
from kubeloop.kube.errors import UserError

log = logging.getLogger(__name__)

_SAMPLERS = ("always_on", "always_off", "traceidratio")
_HINT = "for example --trace-keep slower-than=2s,failed,preempted"


class TailRules(msgspec.Struct, frozen=True):
    """Traces to keep although the sampler did not choose them; decided when they end.

    slower_than_seconds: from creation to the end; None: no such rule. failed: a scheduling attempt or a request failed,
    or the pod was never bound. preempted: room was made for the pod by taking it from others.
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
    """`ratio`: the share of traces that begin here and are sampled, 0 to 1.
    `parent_based`: a trace that began elsewhere keeps the decision made there. `keep`: see TailRules. `enabled` False:
    no trace, no id, no annotation."""

    ratio: float = 1.0
    parent_based: bool = True
    keep: TailRules = NO_TAIL_RULES
    enabled: bool = True

    def samples_root(self, trace_id: str) -> bool:
        """Is a trace that begins here sampled? By its id, so that everybody who asks decides alike."""
        if self.ratio >= 1.0:
            return True
        return int(trace_id[16:], 16) < round(self.ratio * (1 << 64))

    def samples_child(self, trace_id: str, sampled: bool) -> bool:
        """Is a trace sampled here that somebody else began with this decision?"""
        return sampled if self.parent_based else self.samples_root(trace_id)

    @property
    def starts_traces(self) -> bool:
        """Can a trace begin here? If not, a pod that nobody else traces costs nothing."""
        return self.enabled and (self.ratio > 0.0 or bool(self.keep))

    @property
    def records_traces(self) -> bool:
        """Can anything be recorded at all?"""
        return self.starts_traces or (self.enabled and self.parent_based)

    def records(self, sampled: bool) -> bool:
        """Must notes be taken of a trace with this decision?"""
        return sampled or bool(self.keep)

    def document(self) -> dict[str, Any]:
        """For /configz."""
        if not self.enabled:
            return {"sampler": "always_off", "disabled": True}
        prefix = "parentbased_" if self.parent_based else ""
        kind = {1.0: "always_on", 0.0: "always_off"}.get(self.ratio, "traceidratio")
        document: dict[str, Any] = {"sampler": f"{prefix}{kind}"}
        if kind == "traceidratio":
            document["ratio"] = self.ratio
        if self.keep:
            document["keep"] = str(self.keep).split(",")
        return document


DISABLED_SAMPLER = Sampler(enabled=False)


def sampler_from_environment(environ: Mapping[str, str], keep: TailRules = NO_TAIL_RULES) -> Sampler:
    """As the OTEL_* variables say; what they say wrongly is logged and counts as the default, parentbased_always_on."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return DISABLED_SAMPLER
    name = environ.get("OTEL_TRACES_SAMPLER", "").strip().lower() or "parentbased_always_on"
    parent_based = name.startswith("parentbased_")
    kind = name.removeprefix("parentbased_")
    if kind not in _SAMPLERS:  # jaeger_remote and xray ask a server which we do not talk to
        log.warning("unknown OTEL_TRACES_SAMPLER, every trace is recorded", extra={"sampler": name})
        return Sampler(keep=keep)
    ratio = {"always_on": 1.0, "always_off": 0.0, "traceidratio": 1.0}[kind]
    if kind == "traceidratio":
        ratio = _ratio(environ.get("OTEL_TRACES_SAMPLER_ARG", "").strip() or "1.0")
    return Sampler(ratio=ratio, parent_based=parent_based, keep=keep)


def parse_tail_rules(text: str) -> TailRules:
    """The meaning of --trace-keep: rules separated by commas; "" is none. Raises UserError."""
    slower: float | None = None
    names: set[str] = set()
    for word in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = word.partition("=")
        if name == "slower-than":
            slower = duration_seconds(value)
            if slower is None or slower < 0:
                raise UserError(f"--trace-keep: '{value}' is no duration", hint="write 500ms, 2s or 5m")
        elif word in ("failed", "preempted"):
            names.add(word)
        else:
            raise UserError(f"--trace-keep: there is no rule '{word}'", hint=_HINT)
    return TailRules(slower, "failed" in names, "preempted" in names)


def _ratio(argument: str) -> float:
    try:
        ratio = float(argument)
    except ValueError:
        ratio = -1.0
    if not 0.0 <= ratio <= 1.0:
        log.warning("OTEL_TRACES_SAMPLER_ARG is no ratio, every trace is recorded", extra={"argument": argument})
        return 1.0
    return ratio
