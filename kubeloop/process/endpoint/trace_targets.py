"""What `kubeloop trace` is asked for, and where it is found: shared by the command and by the pages that answer it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from kubeloop.kube.errors import UserError

TRACES_PATH = "/debug/traces"
TRACES_PAGE_PATH = "/traces"
_NAMED = 5  # in a hint
_COMPARED = 500  # names that one is looked for among: 20 us each


class Target(msgspec.Struct, frozen=True):
    """What somebody wants to see. kind: "pod", "deployment", or "" for everything; namespace "": not said."""

    kind: str = ""
    name: str = ""
    namespace: str = ""

    def query(self) -> dict[str, str]:
        """As query parameters of the pages here."""
        asked = {"namespace": self.namespace} if self.namespace else {}
        return asked | ({self.kind: self.name} if self.kind else {})

    def __str__(self) -> str:
        if self.kind:
            return f"{self.kind} {f'{self.namespace}/' if self.namespace else ''}{self.name}"
        return f"namespace {self.namespace}" if self.namespace else "all namespaces"


def causes_of(document: Mapping[str, Any]) -> Iterator[str]:
    """Ids of the traces that a trace is linked to, but for the pods that a reconcile created."""
    for span in document["spans"]:
        for link in span["links"]:
            if link.get("attributes", {}).get("kubeloop.link") != "pod":
                yield link["traceId"]


def resolve(kind: str, name: str, namespace: str, known: Collection[tuple[str, str]]) -> str:
    """The namespace of what is called `name`: the one asked for; without one "default" if it is there, else the only
    one that has it.

    known: namespaces and names of everything there is. Raises UserError if it is nowhere, or in several of them.
    """
    having = {space for space, each in known if each == name and namespace in ("", space)}
    if not having:
        where = f"in namespace {namespace}" if namespace else "in any namespace"
        elsewhere = sorted(space for space, each in known if each == name)
        raise UserError(f"no {kind} {name} {where}", hint=_alike(kind, name, namespace, known, elsewhere))
    if len(having) == 1:
        return next(iter(having))
    if "default" in having:
        return "default"
    raise UserError(f"{kind} {name} is in several namespaces: {', '.join(sorted(having))}", hint="say which with -n")


def _alike(kind: str, name: str, namespace: str, known: Collection[tuple[str, str]], elsewhere: Sequence[str]) -> str:
    """A hint: where it is, or what there is that looks like it."""
    if elsewhere:
        return f"there is one in namespace {', '.join(elsewhere)}"
    names = {each: space for space, each in sorted(known) if each and namespace in ("", space)}
    starting = sorted(each for each in names if each.startswith(name))
    import difflib

    likely = starting or difflib.get_close_matches(name, sorted(names)[:_COMPARED], n=_NAMED)
    if not likely:
        return f"kubectl get {kind}s -A lists what there is; the newest traces are kept"
    more = f" and {len(likely) - _NAMED} more" if len(likely) > _NAMED else ""
    return f"did you mean {', '.join(likely[:_NAMED])}{more}?"
