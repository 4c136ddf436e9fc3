"""Which stage an object is in for, and when: pure functions of the object, the time and chance.

Source: KWOK's pkg/utils/lifecycle.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from kubeloop.devcluster.kubelet.stages.files import Amount, Requirement, Stage
from kubeloop.kube.durations import duration_seconds
from kubeloop.kube.json_object import JSON


def matches(stage: Stage, obj: JSON, now: datetime, rng: random.Random) -> bool:
    """Whether the selector of `stage` selects `obj`."""
    metadata = obj["metadata"]
    for wanted, field in ((stage.labels, "labels"), (stage.annotations, "annotations")):
        there = metadata.get(field) or {}
        if any(there.get(key) != value for key, value in wanted.items()):
            return False
    if not all(_satisfied(each, obj) for each in stage.requirements):
        return False
    return not stage.conditions or all(each.holds(obj, _moment(now, rng)) for each in stage.conditions)


def _moment(now: datetime, rng: random.Random) -> Any:
    from kubeloop.devcluster.kubelet.stages.expressions import Moment  # known already to those who have expressions

    return Moment(now, rng)


def _satisfied(requirement: Requirement, obj: JSON) -> bool:
    found = requirement.query.results(obj)
    match requirement.operator:
        case "In":
            return any(_as_text(each) in requirement.values for each in found)
        case "NotIn":
            return not any(_as_text(each) in requirement.values for each in found)
        case "Exists":
            return bool(found)
        case "DoesNotExist":
            return not found


def _as_text(value: Any) -> str | None:
    """As the values of a selector write it; None for what they cannot name."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int):
        return str(value)
    return None


def chosen(stages: Sequence[Stage], obj: JSON, now: datetime, rng: random.Random) -> Stage | None:
    """The stage for `obj`: of those that match, one by weight. None if none matches.

    Weights that cannot be read from the object take part only if all are like that. Source: Lifecycle.Match.
    """
    candidates = [stage for stage in stages if matches(stage, obj, now, rng)]
    if len(candidates) < 2:
        return candidates[0] if candidates else None
    weights = [_weight(stage.weight, obj, now, rng) for stage in candidates]
    total = sum(weight for weight in weights if weight is not None)
    if not total:
        readable = [stage for stage, weight in zip(candidates, weights, strict=True) if weight is not None]
        return rng.choice(readable or candidates)
    return rng.choices(candidates, [weight or 0 for weight in weights])[0]


def _weight(amount: Amount, obj: JSON, now: datetime, rng: random.Random) -> int | None:
    """None: what the object says is no number, and there is no other."""
    if amount.expression is not None:
        return amount.expression.whole(obj, _moment(now, rng))
    found = amount.query.results(obj) if amount.query is not None else []
    if found:
        value = found[0]
        if isinstance(value, str) and re.fullmatch(r"\d+", value):
            return int(value)
        if isinstance(value, int) and not isinstance(value, bool):
            return max(0, value)
    return amount.constant


def delay_seconds(stage: Stage, obj: JSON, now: datetime, rng: random.Random) -> float:
    """How long to wait before `stage` is played: its delay, or a time drawn evenly between delay and jitter.

    A jitter that is less than the delay takes its place. Source: Stage.Delay.
    """
    delay = None if stage.delay is None else _seconds(stage.delay, obj, now, rng)
    if delay is None:
        return 0.0
    jitter = None if stage.jitter is None else _seconds(stage.jitter, obj, now, rng)
    if jitter is None:
        return max(0.0, delay)
    return max(0.0, jitter if jitter <= delay else rng.uniform(delay, jitter))


def _seconds(amount: Amount, obj: JSON, now: datetime, rng: random.Random) -> float | None:
    if amount.expression is not None:
        told = amount.expression.seconds(obj, _moment(now, rng))
        told = duration_seconds(told) if isinstance(told, str) else told
        if told is not None:
            return told
    found = amount.query.results(obj) if amount.query is not None else []
    if found and isinstance(found[0], str):
        if not found[0]:
            return None
        seconds = _until(found[0], now)
        if seconds is None:
            seconds = duration_seconds(found[0])
        if seconds is not None:
            return seconds
    return None if amount.constant is None else amount.constant / 1000


def _until(text: str, now: datetime) -> float | None:
    """Seconds from `now` to a time in RFC 3339; None if it is none."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if "T" not in text:
        return None
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - now).total_seconds()
