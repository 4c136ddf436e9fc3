"""Classes of pods: pods that a selector or affinity term cannot distinguish share a class, which is evaluated once.

A PodInfo holds the classes of its pod (`label_class`, `affinity_class`). Equal classes are the same object while any
pod uses it, so that "is" compares them and counting needs no hashing of labels. Source of the affinity semantics:
kubernetes/pkg/scheduler/framework/types.go of v1.36.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from weakref import WeakValueDictionary

import msgspec

from kubeloop.kube.objects.api_types import Pod, PodAffinity, PodAffinityTerm
from kubeloop.kube.selectors.pod_affinity import AffinityTerm


class LabelClass:
    """The part of a pod that selectors read: its namespace, its labels, and whether it is being deleted."""

    __slots__ = ("__weakref__", "labels", "namespace", "terminating")

    def __init__(self, namespace: str, labels: Mapping[str, str], terminating: bool) -> None:
        self.namespace = namespace
        self.labels = labels
        self.terminating = terminating

    def __repr__(self) -> str:
        return f"LabelClass({self.namespace!r}, {dict(self.labels)!r}, terminating={self.terminating})"


class AffinityClass:
    """The compiled (anti-)affinity of all pods of one namespace with the same terms.

    A group with a malformed term is empty, and `error` is set.
    """

    __slots__ = (
        "__weakref__",
        "error",
        "preferred_affinity_terms",
        "preferred_anti_affinity_terms",
        "required_affinity_terms",
        "required_anti_affinity_terms",
    )

    def __init__(self, namespace: str, affinity: PodAffinity | None, anti_affinity: PodAffinity | None) -> None:
        self.error: ValueError | None = None
        self.required_affinity_terms = self._compile(namespace, _required(affinity))
        self.required_anti_affinity_terms = self._compile(namespace, _required(anti_affinity))
        self.preferred_affinity_terms = self._compile(namespace, _preferred(affinity))
        self.preferred_anti_affinity_terms = self._compile(namespace, _preferred(anti_affinity))

    def _compile(self, namespace: str, terms: Sequence[tuple[PodAffinityTerm, int]]) -> tuple[AffinityTerm, ...]:
        try:
            return tuple(AffinityTerm(namespace, term, weight) for term, weight in terms)
        except ValueError as error:
            self.error = self.error or error
            return ()


def _required(affinity: PodAffinity | None) -> list[tuple[PodAffinityTerm, int]]:
    return [(term, 0) for term in affinity.required] if affinity else []


def _preferred(affinity: PodAffinity | None) -> list[tuple[PodAffinityTerm, int]]:
    return [(term.pod_affinity_term, term.weight) for term in affinity.preferred] if affinity else []


NO_AFFINITY = AffinityClass("", None, None)

_label_classes: WeakValueDictionary[tuple[str, bool, tuple[tuple[str, str], ...]], LabelClass] = WeakValueDictionary()
_affinity_classes: WeakValueDictionary[tuple[str, bytes], AffinityClass] = WeakValueDictionary()
_encoder = msgspec.msgpack.Encoder(order="sorted")


def label_class(pod: Pod) -> LabelClass:
    """Return the class of all pods with this namespace and these labels."""
    metadata = pod.metadata
    labels = metadata.labels
    terminating = metadata.deletion_timestamp is not None
    key = (metadata.namespace, terminating, tuple(sorted(labels.items())))
    cached = _label_classes.get(key)
    if cached is None:
        cached = _label_classes[key] = LabelClass(metadata.namespace, labels, terminating)
    return cached


def affinity_class(pod: Pod) -> AffinityClass:
    """Return the class of all pods with this namespace and pod (anti-)affinity."""
    affinity = pod.spec.affinity
    if affinity is None or (affinity.pod_affinity is None and affinity.pod_anti_affinity is None):
        return NO_AFFINITY
    key = (pod.metadata.namespace, _encoder.encode((affinity.pod_affinity, affinity.pod_anti_affinity)))
    cached = _affinity_classes.get(key)
    if cached is None:
        cached = _affinity_classes[key] = AffinityClass(
            pod.metadata.namespace, affinity.pod_affinity, affinity.pod_anti_affinity
        )
    return cached


class SpecClasses:
    """Numbers of spec classes: pods with the same namespace, labels, owner and scheduling spec.

    Two pods of one class get the same results and scores from every plugin that reads nothing else of the pod. Numbers
    are never reused, so that a cache keyed by them needs no invalidation. enabled False: each pod is a class of its
    own, and nothing computed for one pod is used for another.
    """

    def __init__(self, limit: int = 4096, *, enabled: bool = True) -> None:
        self._limit = limit
        self._enabled = enabled
        self._numbers: dict[bytes, int] = {}
        self._next = 0
        self._last: tuple[Pod | None, int] = (None, -1)

    def number(self, pod: Pod) -> int:
        """Return the number of `pod`'s class. Takes a few microseconds, less if called again for the same object."""
        last_pod, number = self._last
        if last_pod is pod:
            return number
        number = self._find(spec_class(pod)) if self._enabled else self._new()
        self._last = (pod, number)
        return number

    def clear(self) -> None:
        """Give all pods new classes: what plugins read besides pods and nodes has changed."""
        self._numbers.clear()
        self._last = (None, -1)

    def _find(self, key: bytes) -> int:
        number = self._numbers.get(key)
        if number is None:
            if len(self._numbers) >= self._limit:
                self._numbers.clear()
            number = self._numbers[key] = self._new()
        return number

    def _new(self) -> int:
        self._next += 1
        return self._next


def spec_class(pod: Pod) -> bytes:
    """Return what in-tree plugins other than the volume plugins read of a pod, encoded as bytes."""
    metadata, spec = pod.metadata, pod.spec
    return _encoder.encode(
        (
            metadata.namespace,
            metadata.labels,
            [(owner.api_version, owner.kind, owner.name) for owner in metadata.owner_references if owner.controller],
            spec.containers,
            spec.init_containers,
            [volume.image for volume in spec.volumes if volume.image is not None],
            spec.node_selector,
            spec.affinity,
            spec.tolerations,
            spec.topology_spread_constraints,
            spec.overhead,
            spec.resources,
            spec.node_name,
            spec.host_network and spec.host_users is False,
        )
    )
