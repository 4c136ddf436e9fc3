"""Values of the variables `request` and `namespaceObject`."""

from __future__ import annotations

from kubeloop.devcluster.admission.policies.request_variables import namespace_value, request_value
from kubeloop.devcluster.api.served_resources import BY_KIND
from support.apiserver.admission_attributes import create_attributes


def test_request_value_has_the_matched_and_the_requested_version():
    core_event, event = BY_KIND["v1", "Event"], BY_KIND["events.k8s.io/v1", "Event"]
    value = request_value(create_attributes(core_event.resource), event)
    assert value["kind"] == {"group": "events.k8s.io", "version": "v1", "kind": "Event"}
    assert value["resource"] == {"group": "events.k8s.io", "version": "v1", "resource": "events"}
    assert value["requestKind"] == {"group": "", "version": "v1", "kind": "Event"}
    assert value["requestResource"] == {"group": "", "version": "v1", "resource": "events"}


def test_request_value_omits_empty_fields():
    attributes = create_attributes(name="", namespace="")
    value = request_value(attributes, attributes.served)
    assert not {"name", "namespace", "subResource"} & set(value)
    assert value["userInfo"] == {"username": "alice"}


def test_request_value_of_a_subresource_names_it_twice():
    attributes = create_attributes(subresource="status")
    value = request_value(attributes, attributes.served)
    assert (value["subResource"], value["requestSubResource"]) == ("status", "status")


def test_namespace_value_hides_managed_fields():
    namespace = {"metadata": {"name": "n", "managedFields": [{}], "ownerReferences": []}}
    assert namespace_value(namespace) == {"metadata": {"name": "n"}, "spec": {}, "status": {}}
    assert namespace_value(None) is None
