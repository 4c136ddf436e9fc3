"""Which traces are recorded: OTEL_TRACES_SAMPLER and OTEL_TRACES_SAMPLER_ARG, decided on trace ids alone.

Decides as the samplers of the OpenTelemetry specification do, at a fraction of their cost: once per pod, on the hot
path. May import the standard library only.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

log = logging.getLogger(__name__)

_SAMPLERS = ("always_on", "always_off", "traceidratio")


@dataclass(frozen=True, slots=True)
class Sampling:
    """`ratio`: the share of traces that begin here and are recorded, 0 to 1. `parent_based`: a trace that began
    elsewhere keeps the decision made there. `enabled` False: no trace, no id, no annotation."""

    ratio: float = 1.0
    parent_based: bool = True
    enabled: bool = True

    def begins(self, trace_id: str) -> bool:
        """Is a trace that begins here recorded? By its id, so that everybody who asks decides alike."""
        if self.ratio >= 1.0:
            return True
        return int(trace_id[16:], 16) < round(self.ratio * (1 << 64))

    def goes_on(self, trace_id: str, sampled: bool) -> bool:
        """Is a trace recorded that was begun with this decision?

        What was not sampled where it began stays so under every sampler: half a trace explains nothing.
        """
        return sampled and (self.parent_based or self.begins(trace_id))


NEVER = Sampling(enabled=False)


def sampling_from(environ: Mapping[str, str]) -> Sampling:
    """As the OTEL_* variables say; what they say wrongly is logged and counts as the default, parentbased_always_on."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return NEVER
    name = environ.get("OTEL_TRACES_SAMPLER", "").strip().lower() or "parentbased_always_on"
    parent_based = name.startswith("parentbased_")
    kind = name.removeprefix("parentbased_")
    if kind not in _SAMPLERS:
        log.warning("unknown OTEL_TRACES_SAMPLER, every trace is recorded", extra={"sampler": name})
        return Sampling()
    if kind == "always_on":
        return Sampling(parent_based=parent_based)
    if kind == "always_off":
        return Sampling(ratio=0.0, parent_based=parent_based)
    argument = environ.get("OTEL_TRACES_SAMPLER_ARG", "").strip() or "1.0"
    try:
        ratio = float(argument)
    except ValueError:
        ratio = -1.0
    if not 0.0 <= ratio <= 1.0:
        log.warning("OTEL_TRACES_SAMPLER_ARG is no ratio, every trace is recorded", extra={"argument": argument})
        ratio = 1.0
    return Sampling(ratio=ratio, parent_based=parent_based)
