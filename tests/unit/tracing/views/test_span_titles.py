"""Titles and details of spans."""

from __future__ import annotations

import pytest

from kubeloop.tracing.views.span_titles import span_details, title
from support.traces.trace_documents import span


@pytest.mark.parametrize(
    ("name", "attributes", "expected"),
    [
        ("pod", {"k8s__pod__name": "web", "k8s__namespace__name": "shop"}, "pod shop/web"),
        ("pod", {}, "pod /(never created)"),
        ("scheduling attempt", {"kubeloop__attempt": 2}, "scheduling attempt 2"),
        ("reconcile deployment", {"kubeloop__key": "shop/web"}, "reconcile deployment shop/web"),
        ("image pull", {"container__image__name": "app:1"}, "image pull app:1"),
        ("init container", {"k8s__container__name": "migrate"}, "init container migrate"),
        ("crash back-off", {}, "crash back-off"),
        ("pod group", {"k8s__namespace__name": "shop", "kubeloop__pod_group__name": "train"}, "pod group shop/train"),
        ("group attempt", {"kubeloop__attempt": 2}, "group attempt 2"),
        ("placement", {"kubeloop__placement": "rack=a"}, "placement rack=a"),
        ("apply", {"kubeloop__objects": 2}, "apply of 2 objects"),
        ("apply", {"kubeloop__kind": "Namespace", "kubeloop__name": "a"}, "apply Namespace a"),
        (
            "apply",
            {"kubeloop__kind": "Job", "k8s__namespace__name": "shop", "kubeloop__name": "a"},
            "apply Job shop/a",
        ),
        ("create pod", {"kubeloop__action": "create pod web-1"}, "create pod web-1"),
    ],
)
def test_title_has_name_and_object(name, attributes, expected):
    assert title(span(name, 0, 1, **attributes)) == expected


def test_details_have_reasons_rejections_and_errors():
    queue = span("queue unschedulable", 0, 1, kubeloop__reason="no room", kubeloop__woken_by="NodeAdd")
    assert [*span_details(queue)] == ["queue unschedulable: no room, woken by NodeAdd"]
    attributes = {"kubeloop__nodes": 3, "kubeloop__feasible_nodes": 1, "kubeloop__rejected__NodeAffinity": 2}
    assert [*span_details(span("filter", 0, 1, **attributes))] == ["filter: 1 of 3 nodes fit; NodeAffinity rejected 2"]
    assert [*span_details(span("bind", 0, 1, error="409"))] == ["bind: 409"]


@pytest.mark.parametrize(
    ("name", "attributes", "detail"),
    [
        ("unschedulable", {"kubeloop__message": "0/3 nodes are available"}, "unschedulable: 0/3 nodes are available"),
        ("quorum wait", {"kubeloop__pod_group__min_count": 4}, "quorum wait: until 4 pods exist (minCount)"),
        ("group wait", {"kubeloop__reason": "no room"}, "group wait: no room"),
        ("group attempt", {"kubeloop__attempt": 1, "kubeloop__message": "no room"}, "group attempt 1: no room"),
        ("not observed", {"kubeloop__reason": "watch interrupted"}, "not observed: watch interrupted"),
        (
            "image pull",
            {"container__image__name": "app:1", "kubeloop__image__size_bytes": 12_345_678},
            "image pull app:1: 12.3 MB",
        ),
        (
            "image pull",
            {"kubeloop__image__size_bytes": 1_000_000, "kubeloop__image__waiting_ms": 1500},
            "image pull: 1.0 MB, waited 1.50 s for other pulls",
        ),
        (
            "container start",
            {"kubeloop__reason": "CreateContainerConfigError"},
            "container start: CreateContainerConfigError",
        ),
        (
            "container start",
            {"kubeloop__reason": "Waiting", "error": "no such secret"},
            "container start: no such secret",
        ),
        ("gated", {"kubeloop__gates": "example.com/gate"}, "gated: example.com/gate"),
        ("readiness probe", {"kubeloop__message": "refused", "error": "refused"}, "readiness probe: refused"),
        ("image pull", {"kubeloop__image__already_present": True}, "image pull: already present on the node"),
        ("image pull", {"error": "ErrImagePull"}, "image pull: ErrImagePull"),
    ],
)
def test_details_of_observed_spans(name, attributes, detail):
    assert [*span_details(span(name, 0, 1, **attributes))] == [detail]
