"""Admission webhooks of a cluster, which a plan cannot call: findings about those that would see its pods."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec

from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.api_types import LabelSelector
from kubeloop.kube.objects.resources import NAMESPACES, Resource
from kubeloop.kube.selectors.selectors import selector_from
from kubeloop.recording.changes import ClusterState, Finding
from kubeloop.recording.resources import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS


def uncalled_webhooks(
    state: ClusterState, place: str, created: Mapping[Resource[Any], Collection[str]]
) -> Iterator[Finding]:
    """Yield a finding per webhook that would be called for a created object. created: namespaces by resource."""
    for resource, effect in (
        (MUTATING_WEBHOOKS, "pods and other objects may differ in what it would set"),
        (VALIDATING_WEBHOOKS, "it may refuse what the plan creates"),
    ):
        for configuration in state.of(resource).values():
            for webhook in configuration.get("webhooks") or ():
                for created_resource, namespaces in created.items():
                    matching = [name for name in namespaces if _matches(webhook, created_resource, name, state)]
                    if matching:
                        yield Finding(
                            place,
                            f"it is not called for {created_resource.plural} in {', '.join(sorted(matching))}",
                            effect,
                            f"{resource.kind} {configuration['metadata']['name']}, {webhook.get('name')}",
                        )


def _matches(webhook: JSON, resource: Resource[Any], namespace: str, state: ClusterState) -> bool:
    """Return True if a webhook may be called for the creation of an object in this namespace."""
    for rule in webhook.get("rules") or ():
        if not {"*", "CREATE"} & {*rule.get("operations", ())}:
            continue
        if not {"*", resource.group} & {*rule.get("apiGroups", ())}:
            continue
        if {"*", "*/*", resource.plural} & {*rule.get("resources", ())}:
            break
    else:
        return False
    selector = webhook.get("namespaceSelector")
    if not selector:
        return True
    stored = state.of(NAMESPACES).get(namespace) or {"metadata": {}}
    labels = {"kubernetes.io/metadata.name": namespace, **(stored["metadata"].get("labels") or {})}
    return selector_from(msgspec.convert(selector, LabelSelector)).matches(labels)
