"""Targets of `kubeloop trace`: namespaces, hints, and causes."""

import pytest

from kubeloop.kube.user_error import UserError
from kubeloop.process.endpoint.trace_targets import Target, causes_of, resolve, resolve_owner

PODS = [("shop", "web-1"), ("shop", "web-2"), ("default", "web-2"), ("test", "api")]


@pytest.mark.parametrize(
    ("target", "query", "text"),
    [
        (Target("pod", "web-1", "shop"), {"pod": "web-1", "namespace": "shop"}, "pod shop/web-1"),
        (Target("statefulset", "db"), {"owner": "statefulset/db"}, "statefulset db"),
        (Target(namespace="shop"), {"namespace": "shop"}, "namespace shop"),
        (Target(), {}, "all namespaces"),
    ],
)
def test_target_has_query_parameters_and_text(target, query, text):
    assert target.query() == query
    assert str(target) == text


@pytest.mark.parametrize(
    ("name", "namespace", "expected"),
    [("web-1", "", "shop"), ("web-2", "", "default"), ("web-2", "shop", "shop"), ("api", "test", "test")],
)
def test_resolve_prefers_the_given_then_the_default_namespace(name, namespace, expected):
    assert resolve("pod", name, namespace, PODS) == expected


@pytest.mark.parametrize(
    ("name", "namespace", "problem", "hint"),
    [
        ("web-1", "test", "no pod web-1 in namespace test", "it exists in namespace shop"),
        ("web", "", "no pod web in any namespace", "did you mean web-1, web-2?"),
        ("apy", "", "no pod apy in any namespace", "did you mean api?"),
        ("zzz", "", "no pod zzz in any namespace", "kubectl get pods -A"),
    ],
)
def test_missing_object_gets_a_hint(name, namespace, problem, hint):
    with pytest.raises(UserError, match=problem) as raised:
        resolve("pod", name, namespace, PODS)
    assert hint in raised.value.hint


OWNERS = [("shop", "deployment/web"), ("shop", "replicaset/web-5f"), ("data", "statefulset/db"), ("data", "policy/p")]


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        pytest.param("deployment", "web", ("shop", "deployment/web"), id="topmost owner"),
        pytest.param("replicaset", "web-5f", ("shop", "replicaset/web-5f"), id="owner below it"),
        pytest.param("statefulsets", "db", ("data", "statefulset/db"), id="plural"),
        pytest.param("policies", "p", ("data", "policy/p"), id="plural of a custom kind"),
    ],
)
def test_owner_is_resolved_to_its_namespace(kind, name, expected):
    assert resolve_owner(kind, name, "", OWNERS) == expected


@pytest.mark.parametrize(
    ("kind", "name", "existing", "problem", "hint"),
    [
        ("statefulset", "dbb", OWNERS, "no statefulset dbb in any namespace", "did you mean db?"),
        ("node", "a", OWNERS, "no node a owns a traced pod", "deployment, policy, replicaset, statefulset"),
        ("statefulset", "db", [], "no statefulset db in any namespace", "kubectl get statefulsets -A"),
    ],
)
def test_missing_owner_gets_a_hint(kind, name, existing, problem, hint):
    with pytest.raises(UserError, match=problem) as raised:
        resolve_owner(kind, name, "", existing)
    assert hint in raised.value.hint


def test_ambiguous_name_lists_the_namespaces():
    with pytest.raises(UserError, match="exists in several namespaces: a, b"):
        resolve("pod", "web", "", [("b", "web"), ("a", "web")])


def test_causes_leave_out_pods_that_a_reconcile_created():
    links = [
        {"traceId": "1", "attributes": {}},
        {"traceId": "2", "attributes": {"kubeloop.link": "pod"}},
        {"traceId": "3"},
    ]
    assert list(causes_of({"spans": [{"links": links[:2]}, {"links": links[2:]}]})) == ["1", "3"]
