"""Injected faults of the API server (`--faults`), drawn from a seed."""

from __future__ import annotations

import random
from enum import Enum

import msgspec

from kubeloop.kube.user_error import UserError

_MAX_LATENCY_SECONDS = 60


class Faults(msgspec.Struct, frozen=True):
    """Probabilities per request (0 to 1) unless stated otherwise.

    error: 500. throttle: 429 with Retry-After. conflict: 409 for a write. silence: no response, the connection is
    closed. lost_answer: a write takes effect, its response is lost. drop_watch: per watch event, the watch ends after
    it. latency: maximum delay of a request in seconds, uniform from 0. seed: of the random numbers.
    """

    error: float = 0.0
    throttle: float = 0.0
    conflict: float = 0.0
    silence: float = 0.0
    lost_answer: float = 0.0
    drop_watch: float = 0.0
    latency: float = 0.0
    seed: int = 0


SPARED_USER_AGENT = "kubeloop-testing"
"""Requests with this User-Agent meet no faults: those of the test itself, not of the tested program."""


class Fault(Enum):
    """Fault of one request. Values are the fields of Faults."""

    ERROR = "error"
    THROTTLE = "throttle"
    SILENCE = "silence"
    CONFLICT = "conflict"
    LOST_ANSWER = "lost_answer"


_OF_WRITES = (Fault.CONFLICT, Fault.LOST_ANSWER)


class AnswerLost(Exception):
    """The client gets no response; its connection is cut."""


class FaultSource:
    """Draws faults. Writes are mutating requests; requests of SPARED_USER_AGENT are spared."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._rng = random.Random(faults.seed)

    def draw(self, *, write: bool) -> Fault | None:
        point = self._rng.random()
        for fault in Fault:
            chance = getattr(self._faults, fault.value) if write or fault not in _OF_WRITES else 0.0
            if point < chance:
                return fault
            point -= chance
        return None

    def spares(self, user_agent: str) -> bool:
        return user_agent == SPARED_USER_AGENT

    def latency_seconds(self) -> float:
        return self._rng.random() * self._faults.latency

    def drops_watch(self) -> bool:
        return self._rng.random() < self._faults.drop_watch


def parse_faults(text: str) -> Faults:
    """Parse --faults: "error=0.02,lost-answer=0.01,seed=1". Raises UserError."""
    values: dict[str, float] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = part.partition("=")
        name = name.strip().replace("-", "_")
        if name not in Faults.__struct_fields__:
            choices = ", ".join(sorted(option.replace("_", "-") for option in Faults.__struct_fields__))
            raise UserError(f"--faults: no fault named '{name}'", hint=f"supported faults: {choices}")
        try:
            values[name] = int(value) if name == "seed" else float(value)
        except ValueError:
            raise UserError(f"--faults {part}: not a number", hint="for example error=0.02,seed=1") from None
        if name == "latency" and not 0 <= values[name] <= _MAX_LATENCY_SECONDS:
            raise UserError(
                f"--faults {part}: seconds from 0 to {_MAX_LATENCY_SECONDS}", hint="for example latency=0.2"
            )
        if name not in ("seed", "latency") and not 0 <= values[name] <= 1:
            raise UserError(f"--faults {part}: a chance is between 0 and 1", hint="for example error=0.02")
    return Faults(**values)  # type: ignore[arg-type]
