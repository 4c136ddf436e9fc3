"""Does a policy or a binding want to hear of a request? Source: policy/matching, webhook/predicates of v1.36."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kubeloop.devcluster.admission.policies.attributes import Attributes
from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.served_resources import ServedResource
from kubeloop.devcluster.storage.store import Store
from kubeloop.devcluster.validation.common.field_checks import selector_matches
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import NAMESPACES

EquivalentResources = Callable[[ServedResource], Sequence[ServedResource]]
"""Other versions of a resource's objects."""


class Matcher:
    """Matches requests to one store. others: where a policy is to match whatever version objects are written in."""

    def __init__(self, store: Store, others: EquivalentResources) -> None:
        self._store = store
        self._others = others

    def match(self, wanted: JSON, request: Attributes) -> ServedResource | None:
        """As which resource the request is wanted by these matchConstraints or matchResources; None if it is not.

        Raises StatusError 404 for a request in a namespace that is not there.
        """
        if not _selects_object(wanted["objectSelector"], request):
            return None
        if self._ruled(wanted.get("excludeResourceRules"), wanted, request) is not None:
            return None
        rules = wanted.get("resourceRules")
        found = self._ruled(rules, wanted, request) if rules else request.served
        # who would not have been asked does not hear of a missing namespace either
        return found if found is not None and self._in_namespace(wanted["namespaceSelector"], request) else None

    def _in_namespace(self, selector: JSON, request: Attributes) -> bool:
        if not selector or (not request.namespace and not request.is_of_namespace):
            return True
        if request.is_of_namespace and not request.subresource and request.object is not None:
            namespace: JSON | None = request.object
        else:
            namespace = self.namespace(request.namespace)
        return selector_matches(selector, _labels(namespace))

    def namespace(self, name: str) -> JSON:
        found = self._store.get(NAMESPACES, "", name)
        if found is None:
            raise errors.not_found(NAMESPACES, name)
        return found

    def _ruled(self, rules: Iterable[JSON] | None, wanted: JSON, request: Attributes) -> ServedResource | None:
        """The first resource that a rule names: the request's own, or one of the same objects."""
        if not rules:
            return None
        if any(_rule_matches(each, request, request.served) for each in rules):
            return request.served
        if wanted.get("matchPolicy") != "Equivalent":
            return None
        others = self._others(request.served)
        return next((other for rule in rules for other in others if _rule_matches(rule, request, other)), None)


def _labels(obj: JSON | None) -> dict[str, str]:
    return ((obj or {}).get("metadata") or {}).get("labels") or {}


def _selects_object(selector: JSON, request: Attributes) -> bool:
    if not selector:
        return True
    return any(each is not None and selector_matches(selector, _labels(each)) for each in (request.object, request.old))


def _rule_matches(rule: JSON, request: Attributes, served: ServedResource) -> bool:
    resource = served.resource
    is_namespaced = bool(request.namespace) and not request.is_of_namespace
    if rule.get("scope", "*") != "*" and (rule["scope"] == "Namespaced") is not is_namespaced:
        return False
    if not (
        _contains(rule.get("operations"), request.operation)
        and _contains(rule.get("apiGroups"), resource.group)
        and _contains(rule.get("apiVersions"), resource.version)
        and any(_names_resource(each, resource.plural, request.subresource) for each in rule.get("resources") or ())
    ):
        return False
    names = rule.get("resourceNames")
    return not names or request.name in names


def _contains(known: Sequence[str] | None, wanted: str) -> bool:
    return known is not None and ("*" in known or wanted in known)


def _names_resource(pattern: str, plural: str, subresource: str) -> bool:
    resource, _, below = pattern.partition("/")
    return resource in ("*", plural) and below in ("*", subresource)
