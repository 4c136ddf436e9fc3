"""Pods of Services: membership, affected Services, ports and trigger times."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kubeloop.controllers.runtime.label_index import LABELS, SELECTOR_LABEL, labels_of
from kubeloop.controllers.runtime.services.service_pods import (
    TriggerTimeTracker,
    affected_services,
    find_port,
    has_endpoint,
    has_selected_endpoints,
    possible_services,
    published_hostname,
    selected_pods,
    selector_label,
    selects,
)
from kubeloop.informers.store import Store
from kubeloop.kube.objects.api_types import Pod, Service, ServicePort, convert


def service(name: str = "web", **spec: Any) -> Service:
    metadata = {"name": name, "namespace": "ns", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return convert(Service, {"metadata": metadata, "spec": {"selector": {"app": name}, **spec}})


def pod(app: str = "web", *, ready: str = "True", since: str = "2026-01-01T00:01:00Z", **parts: Any) -> Pod:
    conditions = [{"type": "Ready", "status": ready, "lastTransitionTime": since}]
    status = {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}], "conditions": conditions, **parts.pop("status", {})}
    metadata = {"name": "p", "namespace": "ns", "labels": {"app": app}, **parts.pop("metadata", {})}
    return convert(Pod, {"metadata": metadata, "spec": parts, "status": status})


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        pytest.param(None, pod(), ["web"], id="added"),
        pytest.param(pod(), pod(), [], id="unchanged"),
        pytest.param(pod(ready="False"), pod(), ["web"], id="readiness"),
        pytest.param(pod(), pod("db"), ["web", "db"], id="labels"),
        pytest.param(pod(), pod("db", ready="False"), ["web", "db"], id="labels and readiness"),
        pytest.param(pod(), pod(metadata={"labels": {"app": "web", "x": "y"}}), [], id="other label"),
        pytest.param(pod(), pod(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}), ["web"], id="deleted"),
    ],
)
def test_services_that_a_pod_affects(old, new, names):
    services = [service("web"), service("db"), service("none", selector={})]
    assert [it.metadata.name for it in affected_services(old, new, services)] == names


def test_services_without_selector_have_no_selected_endpoints():
    assert has_selected_endpoints(service())
    assert not has_selected_endpoints(service(selector={}))
    assert not has_selected_endpoints(service(type="ExternalName"))


def test_pod_has_endpoint_until_it_finishes():
    terminating = pod(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    assert has_endpoint(pod(ready="False"), include_terminating=False)
    assert has_endpoint(terminating, include_terminating=True)
    assert not has_endpoint(terminating, include_terminating=False)
    assert not has_endpoint(pod(status={"phase": "Failed"}), include_terminating=True)
    assert not has_endpoint(pod(status={"podIP": "", "podIPs": []}), include_terminating=True)


def test_hostname_is_published_in_the_domain_of_its_service():
    assert published_hostname(pod(hostname="web-0", subdomain="web"), service()) == "web-0"
    assert published_hostname(pod(hostname="web-0", subdomain="other"), service()) == ""


def test_find_port_by_number_and_by_name_in_containers_and_sidecars():
    ports = [{"name": "http", "containerPort": 8080}, {"name": "dns", "containerPort": 53, "protocol": "UDP"}]
    sidecar = {"name": "proxy", "restartPolicy": "Always", "ports": [{"name": "admin", "containerPort": 9000}]}
    init = {"name": "init", "ports": [{"name": "init", "containerPort": 1}]}
    web = pod(containers=[{"name": "web", "ports": ports}], initContainers=[init, sidecar])
    targets = [80, "http", "dns", "admin", "init"]
    assert [find_port(web, ServicePort(target_port=target)) for target in targets] == [80, 8080, None, 9000, None]


def test_trigger_time_is_the_earliest_change_since_the_last_sync():
    tracker = TriggerTimeTracker()
    web = service()
    assert tracker.last_change(web, [pod()]) == web.metadata.creation_timestamp
    assert tracker.last_change(web, [pod()]) is None
    later = pod(since="2026-01-01T00:02:00Z", ready="False")
    assert tracker.last_change(web, [later]) == datetime(2026, 1, 1, 0, 2, tzinfo=UTC)
    tracker.forget(web.key)
    assert tracker.last_change(web, []) == web.metadata.creation_timestamp


T1, T2, T3 = (f"2026-01-01T00:0{minute}:00Z" for minute in (1, 2, 3))


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        pytest.param({"a": T1}, {"a": T1}, None, id="nothing"),
        pytest.param({"a": T1}, {"a": T2}, T2, id="a pod changes"),
        pytest.param({"a": T2}, {"a": T1}, None, id="an older state of a pod"),
        pytest.param({"a": T1}, {"a": T1, "b": T2}, T2, id="a new pod"),
        pytest.param({"a": T1, "b": T1}, {"a": T3, "b": T2}, T2, id="the earliest of two changes"),
        pytest.param({"a": T1, "b": T1}, {"a": T1}, None, id="a pod is deleted"),
    ],
)
def test_trigger_time_by_changes_of_pods(before: dict[str, str], after: dict[str, str], change: str | None) -> None:
    tracker, web = TriggerTimeTracker(), service()
    pods = [[pod(metadata={"name": name}, since=since) for name, since in times.items()] for times in (before, after)]
    tracker.last_change(web, pods[0])
    expected = None if change is None else datetime.fromisoformat(change)
    assert tracker.last_change(web, pods[1]) == expected


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        pytest.param(None, T2, T2, id="first seen with a time"),
        pytest.param(T1, T2, T2, id="created again"),
        pytest.param(T2, T2, None, id="the same"),
        pytest.param(T2, T1, None, id="an older state"),
        pytest.param(T1, None, None, id="without a time"),
    ],
)
def test_trigger_time_by_creation_of_the_service(before: str | None, after: str | None, change: str | None) -> None:
    def created(at: str | None) -> Service:
        metadata = replace(service().metadata, creation_timestamp=None if at is None else datetime.fromisoformat(at))
        return replace(service(), metadata=metadata)

    tracker = TriggerTimeTracker()
    tracker.last_change(created(before), [])
    assert tracker.last_change(created(after), []) == (None if change is None else datetime.fromisoformat(change))


_LABELS = st.dictionaries(st.sampled_from("xyz"), st.sampled_from("12"), max_size=3)


@given(
    selectors=st.lists(_LABELS, max_size=6),
    labels=st.lists(_LABELS, max_size=6),
    namespaces=st.lists(st.sampled_from(["a", "b"]), min_size=6, max_size=6),
)
def test_services_and_their_pods_find_each_other_by_indexes(selectors, labels, namespaces):
    services: Store[Service] = Store()
    services.add_index(SELECTOR_LABEL, selector_label)
    pods: Store[Pod] = Store()
    pods.add_index(LABELS, labels_of)
    for number, selector in enumerate(selectors):
        metadata = {"name": f"s{number}", "namespace": namespaces[number]}
        item = convert(Service, {"metadata": metadata, "spec": {"selector": selector}})
        services.put(item.key, item)
    for number, item_labels in enumerate(labels):
        metadata = {"name": f"p{number}", "namespace": namespaces[-1 - number], "labels": item_labels}
        item = convert(Pod, {"metadata": metadata})
        pods.put(item.key, item)
    expected = {
        (one.key, other.key)
        for one in services.values()
        for other in pods.values()
        if one.metadata.namespace == other.metadata.namespace and selects(one, other)
    }
    assert expected == {
        (one.key, other.key) for one in services.values() if one.spec.selector for other in selected_pods(pods, one)
    }
    assert expected == {
        (one.key, other.key)
        for other in pods.values()
        for one in affected_services(None, other, possible_services(services, None, other))
    }
