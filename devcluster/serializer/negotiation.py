"""What an Accept header wants, as kube-apiserver reads it.

Two readers stand behind one another there: go-restful compares the media types with what a path makes, qualities and
parameters aside; what passes is negotiated clause by clause in the order of goautoneg, which puts better qualities and
plain types first. Sources: go-restful route.go, goautoneg, apiserver endpoints/handlers/negotiation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from kubeloop.devcluster.api.errors import BODY_TYPES


@dataclass(frozen=True, slots=True)
class Clause:
    """One form that a client takes: a media type, or "application/*", "*/*", and its parameters but the quality."""

    media_type: str
    quality: float
    parameters: Mapping[str, str]

    def takes(self, made: str) -> bool:
        kind, _, subtype = self.media_type.partition("/")
        wanted, _, form = made.partition("/")
        return (kind == wanted and subtype in (form, "*")) or self.media_type == "*/*"

    @property
    def conversion(self) -> tuple[str, str, str] | None:
        """Group, version and kind of what the answer is to be turned into; None for the answer as it is."""
        named = self.parameters
        if not named.keys() & {"as", "g", "v"}:
            return None
        return named.get("g", ""), named.get("v", ""), named.get("as", "")


@lru_cache(maxsize=256)
def clauses(accept: str) -> tuple[Clause, ...]:
    """The clauses of a header, best first; what is no media type is left out."""
    result: list[Clause] = []
    for text in accept.split(","):
        kind, *rest = text.split(";")
        kind, slash, subtype = (part.strip(" ") for part in kind.partition("/"))
        if not subtype and kind == "*":
            slash, subtype = "/", "*"
        if not subtype or "/" in subtype:
            continue
        pairs = (part.split("=") for part in rest)
        parameters = {pair[0].strip(" "): pair[1].strip(" ") for pair in pairs if len(pair) == 2 and pair[1]}
        result.append(Clause(f"{kind}{slash}{subtype}", _quality(parameters.pop("q", "1")), parameters))
        # by insertion, as there: the order is none that a sort could be given (a type may go before a better "*/*")
        place = len(result) - 1
        while place and _before(result[place], result[place - 1]):
            result[place - 1], result[place] = result[place], result[place - 1]
            place -= 1
    return tuple(result)


def _quality(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _before(one: Clause, other: Clause) -> bool:
    if one.quality > other.quality:
        return True
    if other.media_type.startswith("*/") and not one.media_type.startswith("*/"):
        return True
    return other.media_type.endswith("/*") and not one.media_type.endswith("/*")


def passes(accept: str, made: Sequence[str] = BODY_TYPES) -> bool:
    """Does the first reader let a request through to a path that makes these media types?"""
    return not accept or any(
        text.partition(";")[0].strip(" ") in ("*/*", *made) for text in accept.removesuffix(",").split(",")
    )


def chosen(
    accept: str, allowed: Callable[[str, Clause], bool], made: Sequence[str] = BODY_TYPES
) -> tuple[str, Clause] | None:
    """The media type of the answer and the clause that wants it, the first of those that are allowed."""
    if not accept:
        return made[0], Clause(made[0], 1.0, {})
    for clause in clauses(accept):
        stream = clause.parameters.get("stream", "")
        for media_type in made:
            streamed = not stream or (stream == "watch" and media_type in _STREAMED)
            if clause.takes(media_type) and streamed and allowed(media_type, clause):
                return media_type, clause
    return None


_STREAMED = ("application/json", "application/vnd.kubernetes.protobuf")


def as_it_is(media_type: str, clause: Clause) -> bool:
    """Allows what is not to be turned into something else."""
    del media_type
    return clause.conversion is None
