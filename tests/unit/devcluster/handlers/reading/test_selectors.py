"""Label and field selectors."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.api.served_resources import EVENTS_V1, JOBS, get_served_resource
from kubeloop.devcluster.handlers.reading.selectors import selected_name, selection
from kubeloop.kube.objects.resources import CONFIG_MAPS, EVENTS, NODES, PODS, Resource

JSON = dict[str, Any]
POD: JSON = {"metadata": {"name": "p", "namespace": "ns", "labels": {"a": "b"}}, "spec": {"nodeName": "n"}}
EVENT: JSON = {"metadata": {"name": "e"}, "involvedObject": {"name": "p"}, "reportingComponent": "kubelet"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a", "invalid selector: 'a'; can't understand 'a'"),
        (r"a=\x", r"invalid field selector: invalid escape sequence: \x"),
        ("a=b=c", "invalid field selector: unescaped character in value: 61"),
    ],
)
def test_malformed_field_selector_is_a_bad_request(text: str, message: str):
    with pytest.raises(StatusError) as raised:
        selection(get_served_resource(PODS), "", text)
    assert (raised.value.code, raised.value.message) == (400, message)


@pytest.mark.parametrize(
    ("text", "name"),
    [("metadata.name=a,spec.nodeName=n", "a"), ("metadata.name!=a", ""), ("spec.nodeName=n", ""), ("", "")],
)
def test_name_that_a_field_selector_requires(text: str, name: str):
    assert selected_name(text) == name


@pytest.mark.parametrize(
    ("resource", "labels", "fields", "obj", "is_selected"),
    [
        (PODS, "a=b", "", POD, True),
        (PODS, "a!=b", "", POD, False),
        (PODS, "", "spec.nodeName=n", POD, True),
        (PODS, "", "spec.nodeName!=n", POD, False),
        (PODS, "a=b", "metadata.namespace=ns,spec.hostNetwork=false", POD, True),
        (PODS, "a=c", "spec.nodeName=n", POD, False),
        (NODES, "", "spec.unschedulable=true", {"metadata": {}, "spec": {"unschedulable": True}}, True),
        (JOBS, "", "status.successful=0", {"metadata": {}}, True),
        (EVENTS, "", "involvedObject.name=p", EVENT, True),
        (EVENTS_V1, "", "regarding.name=p", EVENT, True),
        (EVENTS, "", "source=kubelet", EVENT, True),
        (CONFIG_MAPS, "", "metadata.name=p", POD, True),
    ],
)
def test_selection_of_an_object(resource: Resource[Any], labels: str, fields: str, obj: JSON, is_selected: bool):
    select = selection(get_served_resource(resource), labels, fields)
    assert select is not None
    assert select(obj) is is_selected


def test_empty_selectors_select_everything():
    assert selection(get_served_resource(PODS), "", "") is None


@pytest.mark.parametrize(
    ("resource", "field", "message"),
    [
        (PODS, "spec.x", "field label not supported: spec.x"),
        (CONFIG_MAPS, "data", '"data" is not a known field selector: only "metadata.name", "metadata.namespace"'),
        (JOBS, "spec.x", 'field label "spec.x" not supported for Job'),
    ],
)
def test_unknown_field_is_a_bad_request(resource: Resource[Any], field: str, message: str):
    with pytest.raises(StatusError) as raised:
        selection(get_served_resource(resource), "", f"{field}=1")
    assert (raised.value.code, raised.value.message) == (400, message)
