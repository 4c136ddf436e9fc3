"""Objects that the API server creates itself."""

from __future__ import annotations

from kubeloop.devcluster.registry.server_objects import ServerObject, object_template, stamp_object
from kubeloop.kube.objects.resources import PRIORITY_CLASSES, SERVICES


def test_template_is_owned_by_the_api_server():
    content = {"value": 1000, "description": "d"}
    template = object_template(PRIORITY_CLASSES, ServerObject("high", content=content))
    assert {name: value for name, value in template.items() if name != "metadata"} == {
        "kind": "PriorityClass",
        "apiVersion": "scheduling.k8s.io/v1",
        **content,
    }
    (entry,) = template["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"]) == ("kube-apiserver", "Update")
    assert entry["fieldsV1"] == {"f:description": {}, "f:value": {}}


def test_fields_of_the_strategy_have_no_owner():
    server_object = ServerObject(
        "s", "ns", content={"spec": {"type": "ClusterIP"}}, strategy_fields={"spec": {"clusterIP": "10.0.0.1"}}
    )
    template = object_template(SERVICES, server_object)
    assert template["spec"] == {"type": "ClusterIP", "clusterIP": "10.0.0.1"}
    assert "f:clusterIP" not in template["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]


def test_stamp_sets_uid_and_times_in_a_copy():
    template = {
        "metadata": {"name": "a", "managedFields": [{"manager": "m", "time": ""}]},
        "status": {"conditions": [{"type": "Ready"}]},
    }
    assert stamp_object(template, "u", "t1") == {
        "metadata": {
            "name": "a",
            "uid": "u",
            "creationTimestamp": "t1",
            "managedFields": [{"manager": "m", "time": "t1"}],
        },
        "status": {"conditions": [{"type": "Ready", "lastTransitionTime": "t1"}]},
    }
    assert "uid" not in template["metadata"]
