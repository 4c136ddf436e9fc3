"""Classes of pods by labels, affinity and spec."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from kubeloop.scheduler.cache.pod_classes import NO_AFFINITY, SpecClasses, affinity_class, label_class

TERM = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "zone"}


def anti_affinity(term: dict[str, Any]) -> dict[str, Any]:
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def test_label_classes_are_shared_objects(pod: Any) -> None:
    first = label_class(pod("p", labels={"a": "1", "b": "2"}))
    assert label_class(pod("q", labels={"b": "2", "a": "1"})) is first
    assert label_class(pod("q", labels={"a": "1"})) is not first
    assert label_class(pod("q", namespace="other", labels={"a": "1", "b": "2"})) is not first


def test_terminating_pods_have_their_own_class(pod: Any) -> None:
    running = pod("p")
    metadata = msgspec.structs.replace(running.metadata, deletion_timestamp=datetime(2026, 1, 1, tzinfo=UTC))
    terminating = msgspec.structs.replace(running, metadata=metadata)
    assert label_class(terminating).terminating
    assert label_class(terminating) is not label_class(running)


def test_affinity_classes(pod: Any) -> None:
    first = affinity_class(pod("p", affinity=anti_affinity(TERM)))
    assert affinity_class(pod("q", affinity=anti_affinity(TERM))) is first
    assert len(first.required_anti_affinity_terms) == 1
    assert affinity_class(pod("r")) is NO_AFFINITY
    malformed = {"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}, "topologyKey": "zone"}
    assert affinity_class(pod("s", affinity=anti_affinity(malformed))).error is not None


def test_user_namespaces_with_the_host_network_are_a_class(pod: Any) -> None:
    classes = SpecClasses()
    numbers = {classes.number(pod("p", hostNetwork=True, hostUsers=users)) for users in (None, True, False)}
    assert len(numbers) == 2


def test_spec_classes(pod: Any) -> None:
    classes = SpecClasses()
    first = classes.number(pod("p", cpu="1"))
    assert classes.number(pod("q", cpu="1")) == first
    assert classes.number(pod("r", cpu="2")) != first
    disabled = SpecClasses(enabled=False)
    assert disabled.number(pod("p", cpu="1")) != disabled.number(pod("q", cpu="1"))


def test_cleared_classes_get_new_numbers(pod):
    classes = SpecClasses()
    first = classes.number(pod("a"))
    classes.clear()
    assert classes.number(pod("a")) != first


def test_classes_are_numbered_again_beyond_the_limit(pod: Any) -> None:
    """Numbers are not reused, so that results of former classes are not those of later ones."""
    classes = SpecClasses(limit=2)
    first = [classes.number(pod(name, cpu=name)) for name in "12"]
    assert classes.number(pod("same", cpu="1")) == first[0]
    third = classes.number(pod("3", cpu="3"))
    again = classes.number(pod("again", cpu="1"))
    assert len({*first, third, again}) == 4
    assert classes.number(pod("last", cpu="3")) == third


def test_class_depends_on_user_namespaces_of_the_host_network_only(pod: Any) -> None:
    """NodeDeclaredFeatures reads hostUsers: false of pods with hostNetwork."""
    classes = SpecClasses()

    def number(name: str, **spec: Any) -> int:
        return classes.number(pod(name, **spec))

    on_host = number("a", hostNetwork=True)
    assert number("b", hostNetwork=True, hostUsers=False) != on_host
    assert number("c", hostNetwork=True, hostUsers=True) == on_host
    assert number("d", hostUsers=False) == number("e") != number("f", hostNetwork=True, hostUsers=False)
