"""Selection of a stage for an object, and its delay: pure functions of object, time and random numbers.

Source: KWOK's pkg/utils/lifecycle.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from kubeloop.devcluster.kubelet.stages.files import Amount, MatchExpression, Stage
from kubeloop.devcluster.languages.jq import Results
from kubeloop.kube.json_object import JSON
from kubeloop.kube.values.durations import duration_seconds


def matches(stage: Stage, obj: JSON, results: Results, now: datetime, rng: random.Random) -> bool:
    """Return True if the selector of `stage` matches `obj`. results: of the jq expressions about `obj`."""
    metadata = obj["metadata"]
    for required, field in ((stage.labels, "labels"), (stage.annotations, "annotations")):
        actual = metadata.get(field) or {}
        if any(actual.get(key) != value for key, value in required.items()):
            return False
    if not all(_satisfied(requirement, results) for requirement in stage.requirements):
        return False
    return not stage.conditions or all(condition.holds(obj, _moment(now, rng)) for condition in stage.conditions)


def _moment(now: datetime, rng: random.Random) -> Any:
    from kubeloop.devcluster.kubelet.stages.expressions import Moment  # imported if any stage has expressions

    return Moment(now, rng)


def _satisfied(requirement: MatchExpression, results: Results) -> bool:
    values = results[requirement.query]
    match requirement.operator:
        case "In":
            return any(_as_text(value) in requirement.values for value in values)
        case "NotIn":
            return not any(_as_text(value) in requirement.values for value in values)
        case "Exists":
            return bool(values)
        case "DoesNotExist":
            return not values


def _as_text(value: Any) -> str | None:
    """Return a value in the form of selector values; None for other types."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int):
        return str(value)
    return None


def select_stage(
    stages: Sequence[Stage], obj: JSON, results: Results, now: datetime, rng: random.Random
) -> Stage | None:
    """Return the stage for `obj`: one of the matching stages by weight, None if none matches.

    Stages whose weight cannot be read from the object are candidates only if this holds for all. Source:
    Lifecycle.Match.
    """
    candidates = [stage for stage in stages if matches(stage, obj, results, now, rng)]
    if len(candidates) < 2:
        return candidates[0] if candidates else None
    weights = [_weight(stage.weight, obj, results, now, rng) for stage in candidates]
    total = sum(weight for weight in weights if weight is not None)
    if not total:
        readable = [stage for stage, weight in zip(candidates, weights, strict=True) if weight is not None]
        return rng.choice(readable or candidates)
    return rng.choices(candidates, [weight or 0 for weight in weights])[0]


def _weight(amount: Amount, obj: JSON, results: Results, now: datetime, rng: random.Random) -> int | None:
    """Return the weight; None if the object's value is not a number and there is no constant."""
    if amount.expression is not None:
        return amount.expression.whole(obj, _moment(now, rng))
    values = results[amount.query] if amount.query is not None else ()
    if values:
        value = values[0]
        if isinstance(value, str) and re.fullmatch(r"\d+", value):
            return int(value)
        if isinstance(value, int) and not isinstance(value, bool):
            return max(0, value)
    return amount.constant


def delay_seconds(stage: Stage, obj: JSON, results: Results, now: datetime, rng: random.Random) -> float:
    """Return the delay of `stage`: its delay, or a random time between delay and jitter.

    A jitter below the delay replaces it. Source: Stage.Delay.
    """
    delay = None if stage.delay is None else _seconds(stage.delay, obj, results, now, rng)
    if delay is None:
        return 0.0
    jitter = None if stage.jitter is None else _seconds(stage.jitter, obj, results, now, rng)
    if jitter is None:
        return max(0.0, delay)
    return max(0.0, jitter if jitter <= delay else rng.uniform(delay, jitter))


def _seconds(amount: Amount, obj: JSON, results: Results, now: datetime, rng: random.Random) -> float | None:
    if amount.expression is not None:
        delay = amount.expression.seconds(obj, _moment(now, rng))
        delay = duration_seconds(delay) if isinstance(delay, str) else delay
        if delay is not None:
            return delay
    values = results[amount.query] if amount.query is not None else ()
    if values and isinstance(values[0], str):
        if not values[0]:
            return None
        seconds = _until(values[0], now)
        if seconds is None:
            seconds = duration_seconds(values[0])
        if seconds is not None:
            return seconds
    return None if amount.constant is None else amount.constant / 1000


def _until(text: str, now: datetime) -> float | None:
    """Return the seconds from `now` to an RFC 3339 time; None for other texts."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if "T" not in text:
        return None
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - now).total_seconds()
