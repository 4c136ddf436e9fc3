"""Matching of requests with policies and bindings. Source: policy/matching, webhook/predicates of v1.36."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kubeloop.devcluster.admission.attributes import Attributes
from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.served_resources import ServedResource
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.devcluster.validation.common.error_list import selector_matches
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import NAMESPACES

EquivalentResources = Callable[[ServedResource], Sequence[ServedResource]]
"""Returns the other API versions of a resource's objects."""


class Matcher:
    """Matches requests with resource rules and selectors. equivalent_resources: for matchPolicy Equivalent."""

    def __init__(self, store: ObjectStore, equivalent_resources: EquivalentResources) -> None:
        self._store = store
        self._equivalent_resources = equivalent_resources

    def match(self, match: JSON, request: Attributes) -> ServedResource | None:
        """Return the resource as which a request matches matchConstraints or matchResources; None if it does not.

        Raises StatusError 404 for a request in a namespace that is not there.
        """
        if not _selects_object(match["objectSelector"], request):
            return None
        if self._resource_matched_by(match.get("excludeResourceRules"), match, request) is not None:
            return None
        rules = match.get("resourceRules")
        matched = self._resource_matched_by(rules, match, request) if rules else request.served
        # the namespace is checked last: a request that no rule matches must not fail for a missing namespace
        return matched if matched is not None and self._in_namespace(match["namespaceSelector"], request) else None

    def _in_namespace(self, selector: JSON, request: Attributes) -> bool:
        if not selector or (not request.namespace and not request.is_of_namespace):
            return True
        if request.is_of_namespace and not request.subresource and request.object is not None:
            namespace: JSON | None = request.object
        else:
            namespace = self.namespace(request.namespace)
        return selector_matches(selector, _labels(namespace))

    def namespace(self, name: str) -> JSON:
        namespace = self._store.get(NAMESPACES, "", name)
        if namespace is None:
            raise errors.not_found(NAMESPACES, name)
        return namespace

    def _resource_matched_by(
        self, rules: Iterable[JSON] | None, match: JSON, request: Attributes
    ) -> ServedResource | None:
        """Return the resource that the rules match: the request's own, or an equivalent one; None for none."""
        if not rules:
            return None
        if any(_rule_matches(rule, request, request.served) for rule in rules):
            return request.served
        if match.get("matchPolicy") != "Equivalent":
            return None
        equivalents = self._equivalent_resources(request.served)
        return next((other for rule in rules for other in equivalents if _rule_matches(rule, request, other)), None)


def _labels(obj: JSON | None) -> dict[str, str]:
    return ((obj or {}).get("metadata") or {}).get("labels") or {}


def _selects_object(selector: JSON, request: Attributes) -> bool:
    if not selector:
        return True
    return any(obj is not None and selector_matches(selector, _labels(obj)) for obj in (request.object, request.old))


def _rule_matches(rule: JSON, request: Attributes, served: ServedResource) -> bool:
    resource = served.resource
    is_namespaced = bool(request.namespace) and not request.is_of_namespace
    if rule.get("scope", "*") != "*" and (rule["scope"] == "Namespaced") is not is_namespaced:
        return False
    if not (
        _contains(rule.get("operations"), request.operation)
        and _contains(rule.get("apiGroups"), resource.group)
        and _contains(rule.get("apiVersions"), resource.version)
        and any(
            _names_resource(pattern, resource.plural, request.subresource) for pattern in rule.get("resources") or ()
        )
    ):
        return False
    names = rule.get("resourceNames")
    return not names or request.name in names


def _contains(values: Sequence[str] | None, value: str) -> bool:
    return values is not None and ("*" in values or value in values)


def _names_resource(pattern: str, plural: str, subresource: str) -> bool:
    resource, _, below = pattern.partition("/")
    return resource in ("*", plural) and below in ("*", subresource)
