"""Matching of requests with resource rules and selectors."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.admission.attributes import equivalent_resources
from kubeloop.devcluster.admission.policies.matcher import Matcher
from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.api.served_resources import BY_KIND
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.objects.resources import NAMESPACES, NODES
from support.apiserver.admission_attributes import create_attributes

JSON = dict[str, Any]


def rule(**fields: Any) -> JSON:
    return {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"], **fields}


def constraints(*rules: JSON, **fields: Any) -> JSON:
    return {"objectSelector": {}, "namespaceSelector": {}, "resourceRules": [*rules], **fields}


@pytest.fixture
def matcher() -> Matcher:
    store = ObjectStore(seconds=lambda: 0.0)
    store.create(NAMESPACES, {"metadata": {"name": "default", "uid": "u", "labels": {"team": "a"}}})
    return Matcher(store, equivalent_resources)


@pytest.mark.parametrize(
    ("match", "matches"),
    [
        pytest.param(constraints(rule()), True, id="every resource"),
        pytest.param(constraints(rule(resources=["configmaps"], apiGroups=[""])), True, id="resource"),
        pytest.param(constraints(rule(resources=["secrets"])), False, id="other resource"),
        pytest.param(constraints(rule(resources=["configmaps/status"])), False, id="subresource"),
        pytest.param(constraints(rule(operations=["UPDATE"])), False, id="other operation"),
        pytest.param(constraints(rule(scope="Cluster")), False, id="other scope"),
        pytest.param(constraints(rule(resourceNames=["a"])), True, id="name"),
        pytest.param(constraints(rule(resourceNames=["b"])), False, id="other name"),
        pytest.param(constraints(), True, id="no rules"),
        pytest.param(
            constraints(rule(), excludeResourceRules=[rule(resources=["configmaps"])]), False, id="excluded resource"
        ),
        pytest.param(constraints(rule(), objectSelector={"matchLabels": {"a": "b"}}), False, id="labels of the object"),
        pytest.param(
            constraints(rule(), namespaceSelector={"matchLabels": {"team": "a"}}), True, id="labels of the namespace"
        ),
        pytest.param(
            constraints(rule(), namespaceSelector={"matchLabels": {"team": "b"}}), False, id="other namespace"
        ),
    ],
)
def test_match_of_a_new_config_map(matcher: Matcher, match: JSON, matches: bool):
    request = create_attributes()
    assert matcher.match(match, request) is (request.served if matches else None)


def test_equivalent_policy_matches_another_api_version(matcher: Matcher):
    core_event, event = BY_KIND["v1", "Event"], BY_KIND["events.k8s.io/v1", "Event"]
    request = create_attributes(core_event.resource)
    rules = rule(apiGroups=["events.k8s.io"], resources=["events"])
    assert matcher.match(constraints(rules, matchPolicy="Equivalent"), request) is event
    assert matcher.match(constraints(rules, matchPolicy="Exact"), request) is None


def test_namespace_selector_ignores_cluster_scoped_objects(matcher: Matcher):
    request = create_attributes(NODES)
    selector = {"matchLabels": {"team": "b"}}
    assert matcher.match(constraints(rule(), namespaceSelector=selector), request) is request.served


def test_namespace_selector_applies_to_the_labels_of_a_namespace(matcher: Matcher):
    namespace = {"metadata": {"name": "a", "labels": {"team": "b"}}}
    request = create_attributes(NAMESPACES, namespace="a", object=namespace)
    selector = {"matchLabels": {"team": "b"}}
    assert matcher.match(constraints(rule(), namespaceSelector=selector), request) is request.served


def test_missing_namespace_is_an_error_only_if_a_rule_matches(matcher: Matcher):
    request = create_attributes(namespace="gone")
    selector = {"matchLabels": {"team": "a"}}
    with pytest.raises(StatusError, match='namespaces "gone" not found'):
        matcher.match(constraints(rule(), namespaceSelector=selector), request)
    assert matcher.match(constraints(rule(resources=["secrets"]), namespaceSelector=selector), request) is None
