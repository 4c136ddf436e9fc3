"""Targets of `kubeloop trace`, shared by the command and the endpoint's pages."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from kubeloop.kube.user_error import UserError, closest_names
from kubeloop.tracing.spans.owners import POD_GROUP, owner_text, plural_kind
from kubeloop.tracing.views.pod_lines import relation

POD_GROUP_KIND = POD_GROUP.lower()
"""Kind of a target that is a pod group."""

NEWEST_ONLY = "only the newest traces are stored"
_MAX_SUGGESTIONS = 5  # in a hint
_MAX_COMPARED = 500  # names compared for similarity: 20 us each


class Target(msgspec.Struct, frozen=True):
    """The selected traces. namespace "": not specified.

    kind: "pod", or the kind of an owner of pods in lower case, such as "statefulset"; "" for all pods.
    """

    kind: str = ""
    name: str = ""
    namespace: str = ""

    def query(self) -> dict[str, str]:
        """Return the query parameters for the endpoint's trace pages."""
        parameters = {"namespace": self.namespace} if self.namespace else {}
        if self.is_owner:
            parameters["owner"] = f"{self.kind}/{self.name}"
        elif self.kind:
            parameters["pod"] = self.name
        return parameters

    @property
    def is_owner(self) -> bool:
        return self.kind not in ("", "pod")

    def __str__(self) -> str:
        if self.kind:
            return f"{self.kind} {f'{self.namespace}/' if self.namespace else ''}{self.name}"
        return f"namespace {self.namespace}" if self.namespace else "all namespaces"


def causes_of(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield ids of the traces that a trace is linked to, except for those of pods."""
    for span in document["spans"]:
        for link in span["links"]:
            if relation(link) != "pod":
                yield link["traceId"]


def resolve(
    kind: str, name: str, namespace: str, existing: Collection[tuple[str, str]], *, incomplete: str = NEWEST_ONLY
) -> str:
    """Return the namespace of the object `name`: `namespace` if given, else "default" if it has one, else the only
    namespace that has one.

    existing: (namespace, name) of all objects of the kind. incomplete: why others may exist, "" if these are all.
    Raises UserError if no namespace or several have the object.
    """
    namespaces = {ns for ns, existing_name in existing if existing_name == name and namespace in ("", ns)}
    if not namespaces:
        where = f"in namespace {namespace}" if namespace else "in any namespace"
        elsewhere = sorted(ns for ns, existing_name in existing if existing_name == name)
        raise UserError(f"no {kind} {name} {where}", hint=_hint(kind, name, namespace, existing, elsewhere, incomplete))
    if len(namespaces) == 1:
        return next(iter(namespaces))
    if "default" in namespaces:
        return "default"
    listed = ", ".join(sorted(namespaces))
    raise UserError(f"{kind} {name} exists in several namespaces: {listed}", hint="choose one with -n")


def resolve_owner(kind: str, name: str, namespace: str, existing: Collection[tuple[str, str]]) -> tuple[str, str]:
    """Return the namespace of an owner of pods, chosen as resolve() does, and the owner as text: "statefulset/db".

    kind: in lower case, singular or plural. existing: (namespace, owner as text) of all owners. Raises UserError.
    """
    parts = [(owner_namespace, *owner.split("/", 1)) for owner_namespace, owner in existing]
    kinds = {owner_kind for _, owner_kind, _ in parts}
    singular = next((owner_kind for owner_kind in sorted(kinds) if kind in (owner_kind, plural_kind(owner_kind))), "")
    if kinds and not singular:
        raise UserError(
            f"no {kind} {name} owns a traced pod",
            hint=f"the owners of traced pods are of kind {', '.join(sorted(kinds))}",
        )
    kind = singular or kind
    names = {(owner_namespace, owner_name) for owner_namespace, owner_kind, owner_name in parts if owner_kind == kind}
    return resolve(kind, name, namespace, names), owner_text(kind, name)


def _hint(
    kind: str,
    name: str,
    namespace: str,
    existing: Collection[tuple[str, str]],
    elsewhere: Sequence[str],
    incomplete: str,
) -> str:
    """Return a hint: other namespaces that have the name, or similar names."""
    if elsewhere:
        return f"it exists in namespace {', '.join(elsewhere)}"
    listed = f"list all with kubectl get {plural_kind(kind)} -A"
    return similar_names(name, namespace, existing) or (f"{listed}; {incomplete}" if incomplete else listed)


def similar_names(name: str, namespace: str, existing: Collection[tuple[str, str]]) -> str:
    """Return "did you mean ...?" with names like `name` in `namespace` (""; any); "" if there are none.

    existing: (namespace, name).
    """
    names = {candidate: ns for ns, candidate in sorted(existing) if candidate and namespace in ("", ns)}
    starting = sorted(candidate for candidate in names if candidate.startswith(name))
    likely = starting or closest_names(name, sorted(names)[:_MAX_COMPARED], count=_MAX_SUGGESTIONS)
    if not likely:
        return ""
    more = f" and {len(likely) - _MAX_SUGGESTIONS} more" if len(likely) > _MAX_SUGGESTIONS else ""
    return f"did you mean {', '.join(likely[:_MAX_SUGGESTIONS])}{more}?"
