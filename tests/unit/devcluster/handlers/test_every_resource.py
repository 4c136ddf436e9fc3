"""Every kind, every verb, every subresource: what discovery says is what works."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from kubeloop.devcluster.api.served_resources import BY_PATH, CREATE_ONLY, ServedResource, resources_of_version
from kubeloop.devcluster.api.subresources import subresource_verbs
from kubeloop.devcluster.openapi.discovery import get_discovery_document
from kubeloop.devcluster.openapi.documents import get_openapi_document
from support.api_requests import InProcessApi

JSON = dict[str, Any]
POD_SPEC: JSON = {"containers": [{"name": "main", "image": "nginx"}]}
TEMPLATE: JSON = {"metadata": {"labels": {"app": "x"}}, "spec": POD_SPEC}
SELECTOR: JSON = {"matchLabels": {"app": "x"}}
JOB: JSON = {"template": {"spec": {**POD_SPEC, "restartPolicy": "Never"}}}
ROLE_REF: JSON = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
SOURCES: JSON = {
    "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["pods"]}]
}
SCALED: JSON = {"scaleTargetRef": {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"}, "maxReplicas": 3}
CONTENT: dict[str, JSON] = {
    "pods": {"spec": POD_SPEC},
    "replicationcontrollers": {"spec": {"selector": {"app": "x"}, "template": TEMPLATE}},
    "services": {"spec": {"ports": [{"port": 80}]}},
    "persistentvolumes": {
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/data"}}
    },
    "persistentvolumeclaims": {
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    },
    "events": {"involvedObject": {"namespace": "default", "kind": "Pod", "name": "x"}, "reason": "R", "type": "Normal"},
    "limitranges": {"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}}]}},
    "podtemplates": {"template": TEMPLATE},
    "deployments.apps": {"spec": {"selector": SELECTOR, "template": TEMPLATE}},
    "replicasets.apps": {"spec": {"selector": SELECTOR, "template": TEMPLATE}},
    "statefulsets.apps": {"spec": {"selector": SELECTOR, "template": TEMPLATE, "serviceName": "x"}},
    "daemonsets.apps": {"spec": {"selector": SELECTOR, "template": TEMPLATE}},
    "controllerrevisions.apps": {"revision": 1, "data": {"spec": {}}},
    "jobs.batch": {"spec": JOB},
    "cronjobs.batch": {"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": JOB}}},
    "horizontalpodautoscalers.autoscaling": {"spec": SCALED},
    "poddisruptionbudgets.policy": {"spec": {"minAvailable": 1, "selector": SELECTOR}},
    "priorityclasses.scheduling.k8s.io": {"value": 5},
    "storageclasses.storage.k8s.io": {"provisioner": "example.com/disk"},
    "csinodes.storage.k8s.io": {"spec": {"drivers": []}},
    "csidrivers.storage.k8s.io": {"spec": {}},
    "csistoragecapacities.storage.k8s.io": {"storageClassName": "fast"},
    "volumeattachments.storage.k8s.io": {
        "spec": {"attacher": "example.com", "nodeName": "n", "source": {"persistentVolumeName": "v"}}
    },
    "volumeattributesclasses.storage.k8s.io": {"driverName": "example.com", "parameters": {"iops": "5"}},
    "leases.coordination.k8s.io": {"spec": {"holderIdentity": "x"}},
    "events.events.k8s.io": {
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "example.com/c",
        "reportingInstance": "i",
        "action": "A",
        "reason": "R",
        "type": "Normal",
        "regarding": {"namespace": "default", "kind": "Pod", "name": "x"},
    },
    "ingresses.networking.k8s.io": {"spec": {"defaultBackend": {"service": {"name": "x", "port": {"number": 80}}}}},
    "ingressclasses.networking.k8s.io": {"spec": {"controller": "example.com/c"}},
    "networkpolicies.networking.k8s.io": {"spec": {"podSelector": {}}},
    "ipaddresses.networking.k8s.io": {
        "spec": {"parentRef": {"resource": "services", "name": "x", "namespace": "default"}}
    },
    "servicecidrs.networking.k8s.io": {"spec": {"cidrs": ["10.9.0.0/24"]}},
    "rolebindings.rbac.authorization.k8s.io": {"roleRef": ROLE_REF},
    "clusterrolebindings.rbac.authorization.k8s.io": {"roleRef": ROLE_REF},
    "endpointslices.discovery.k8s.io": {"addressType": "IPv4", "endpoints": []},
    "runtimeclasses.node.k8s.io": {"handler": "runc"},
    "apiservices.apiregistration.k8s.io": {
        "spec": {"group": "example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10}
    },
    "certificatesigningrequests.certificates.k8s.io": {
        "spec": {"request": "LS0tLS0=", "signerName": "example.com/s", "usages": ["client auth"]}
    },
    "mutatingadmissionpolicies.admissionregistration.k8s.io": {
        "spec": {
            "matchConstraints": SOURCES,
            "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{}"}}],
            "reinvocationPolicy": "Never",
        }
    },
    "mutatingadmissionpolicybindings.admissionregistration.k8s.io": {"spec": {"policyName": "p"}},
    "validatingadmissionpolicies.admissionregistration.k8s.io": {
        "spec": {"matchConstraints": SOURCES, "validations": [{"expression": "true"}]}
    },
    "validatingadmissionpolicybindings.admissionregistration.k8s.io": {
        "spec": {"policyName": "p", "validationActions": ["Deny"]}
    },
    "flowschemas.flowcontrol.apiserver.k8s.io": {
        "spec": {"priorityLevelConfiguration": {"name": "global-default"}, "matchingPrecedence": 7}
    },
    "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io": {"spec": {"type": "Exempt", "exempt": {}}},
    "deviceclasses.resource.k8s.io": {"spec": {}},
    "resourceclaims.resource.k8s.io": {"spec": {"devices": {}}},
    "resourceclaimtemplates.resource.k8s.io": {"spec": {"spec": {}}},
    "resourceslices.resource.k8s.io": {
        "spec": {
            "driver": "example.com",
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            "allNodes": True,
        }
    },
}
NAMES = {
    "apiservices.apiregistration.k8s.io": "v1.example.com",
    "ipaddresses.networking.k8s.io": "10.9.0.1",
}
STORED = [each for each in BY_PATH.values() if each.is_stored and each.resource.kind != "CustomResourceDefinition"]
"""Definitions of custom resources have a life of their own: see custom/."""
WITH_STATUS = [each for each in STORED if each.has_status]
SCALABLE = [each for each in STORED if "scale" in each.resource.subresources]
PROTECTED = ("Namespace", "PersistentVolume", "PersistentVolumeClaim", "VolumeAttributesClass")
PATCHES = {"json": "json-patch+json", "merge": "merge-patch+json", "strategic": "strategic-merge-patch+json"}


def named(each: ServedResource) -> str:
    return f"{each.resource.plural}.{each.resource.api_version}"


@pytest.fixture
async def api() -> InProcessApi:
    return InProcessApi(default_headers={"user_agent": "tests/1"})


def collection(each: ServedResource) -> str:
    return each.resource.path("default" if each.resource.namespaced else "")


def example(each: ServedResource, name: str = "") -> JSON:
    resource = each.resource
    name = name or NAMES.get(resource.group_resource, "x")
    metadata: JSON = {"name": name, "labels": {"app": "x"}}
    if resource.namespaced:
        metadata["namespace"] = "default"
    content = CONTENT.get(resource.group_resource, {})
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **content}


async def first_events(stream: AsyncIterator[bytes], count: int) -> list[tuple[str, JSON]]:
    """Type and object of so many events of a watch."""
    found: list[tuple[str, JSON]] = []
    async for chunk in stream:
        for line in chunk.splitlines():
            event = msgspec.json.decode(line)
            found.append((event["type"], event["object"]))
        if len(found) >= count:
            break
    await stream.aclose()  # type: ignore[attr-defined]
    return found


@pytest.mark.parametrize("each", STORED, ids=named)
async def test_a_kind_is_created_read_changed_watched_and_deleted(each: ServedResource, api: InProcessApi):
    sent = example(each)
    created = api.succeed("POST", collection(each), sent)
    path = f"{collection(each)}/{created['metadata']['name']}"
    assert (created["apiVersion"], created["kind"]) == (each.resource.api_version, each.resource.kind)
    assert created["metadata"].get("generation", 0) == bool(each.generation)
    assert api.succeed("GET", path) == created

    listed = api.succeed("GET", f"{collection(each)}?labelSelector=app%3Dx")
    assert listed["kind"] == each.list_kind
    assert [item["metadata"]["uid"] for item in listed["items"]] == [created["metadata"]["uid"]]
    watch = api.succeed("GET", f"{collection(each)}?watch=1&resourceVersion={listed['metadata']['resourceVersion']}")

    created["metadata"]["annotations"] = {"by": "update"}
    updated = api.succeed("PUT", path, created)
    assert updated["metadata"]["annotations"].items() >= {"by": "update"}.items()
    json_patch = [{"op": "replace", "path": "/metadata/annotations/by", "value": "json"}]
    for kind, media in PATCHES.items():
        body = json_patch if kind == "json" else {"metadata": {"annotations": {"by": kind}}}
        patched = api.succeed("PATCH", path, body, f"application/{media}")
        assert patched["metadata"]["annotations"]["by"] == kind
        assert {name: value for name, value in patched.items() if name != "metadata"} == {
            name: value for name, value in updated.items() if name != "metadata"
        }
    wish = {
        "apiVersion": sent["apiVersion"],
        "kind": sent["kind"],
        "metadata": {"name": sent["metadata"]["name"], "annotations": {"applied": "yes"}},
    }
    applied = api.succeed("PATCH", f"{path}?fieldManager=me", wish, "application/apply-patch+yaml")
    assert applied["metadata"]["annotations"].items() >= {"by": "strategic", "applied": "yes"}.items()
    owners = {(entry["manager"], entry["operation"]) for entry in applied["metadata"]["managedFields"]}
    assert owners == {("tests", "Update"), ("me", "Apply")}
    assert all(entry["apiVersion"] == sent["apiVersion"] for entry in applied["metadata"]["managedFields"])

    api.succeed("DELETE", path)
    if api("GET", path)[0] == 200:  # it waits for its finalizer
        assert each.resource.kind in PROTECTED or each.dependents == "orphaned"
        return
    events = await first_events(watch, 6)
    assert [type_ for type_, _ in events][:5] == ["MODIFIED"] * 5
    assert events[-1][0] == "DELETED"
    assert {(obj["apiVersion"], obj["kind"]) for _, obj in events} == {(sent["apiVersion"], sent["kind"])}


@pytest.mark.parametrize("each", STORED, ids=named)
async def test_a_kind_is_applied_shown_as_a_table_and_deleted_together(each: ServedResource, api: InProcessApi):
    wish = example(each)
    path = f"{collection(each)}/{wish['metadata']['name']}"
    api.succeed("PATCH", f"{path}?fieldManager=me", wish, "application/apply-patch+yaml")
    shown = api.succeed("GET", collection(each), accept="application/json;as=Table;v=v1;g=meta.k8s.io")
    rows = [row["cells"] for row in shown["rows"]]
    assert any(wish["metadata"]["name"] in row for row in rows)
    more = 1 if each.resource.kind == "IPAddress" else 0  # v1.36 forgets to define the column of their age
    assert all(len(row) == len(shown["columnDefinitions"]) + more for row in rows)
    metadata = api.succeed("GET", path, accept="application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io")
    assert metadata["metadata"]["labels"]["app"] == "x"
    status, _ = api("DELETE", f"{collection(each)}?labelSelector=app%3Dx")
    assert status == (200 if "deletecollection" in each.verbs else 405)
    if status == 200:
        left = api("GET", path)[1]
        assert left.get("code") == 404 or "deletionTimestamp" in left["metadata"]


@pytest.mark.parametrize("each", WITH_STATUS, ids=named)
async def test_a_status_is_written_through_its_subresource_alone(each: ServedResource, api: InProcessApi):
    created = api.succeed("POST", collection(each), example(each))
    path = f"{collection(each)}/{created['metadata']['name']}"
    field, value = STATUS.get(each.resource.group_resource, ("conditions", [CONDITION]))
    spec_before = created.get("spec")
    ignored = api.succeed("PUT", path, {**created, "status": {**(created.get("status") or {}), field: value}})
    assert (ignored.get("status") or {}) == (created.get("status") or {}) or each.resource.kind == "Node"
    written = api.succeed("PATCH", f"{path}/status", {"status": {field: value}}, "application/merge-patch+json")
    assert written["status"][field] == value
    again = api.succeed("PUT", f"{path}/status", written)
    assert (again["status"], again.get("spec")) == (written["status"], spec_before)
    assert api.succeed("GET", f"{path}/status") == api.succeed("GET", path)


CONDITION: JSON = {
    "type": "Tested",
    "status": "True",
    "reason": "Test",
    "message": "by a test",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}
STATUS: dict[str, tuple[str, Any]] = {
    "pods": ("message", "by a test"),
    "nodes": ("phase", "Running"),
    "namespaces": ("phase", "Active"),
    "persistentvolumes": ("message", "by a test"),
    "persistentvolumeclaims": ("phase", "Lost"),
    "replicationcontrollers": ("observedGeneration", 1),
    "resourcequotas": ("hard", {"pods": "1"}),
    "deployments.apps": ("observedGeneration", 1),
    "replicasets.apps": ("observedGeneration", 1),
    "statefulsets.apps": ("observedGeneration", 1),
    "daemonsets.apps": ("observedGeneration", 1),
    "jobs.batch": ("active", 1),
    "cronjobs.batch": ("lastScheduleTime", "2026-01-01T00:00:00Z"),
    "horizontalpodautoscalers.autoscaling": ("currentReplicas", 2),
    "ingresses.networking.k8s.io": ("loadBalancer", {"ingress": [{"ip": "10.0.0.9"}]}),
    "poddisruptionbudgets.policy": ("observedGeneration", 1),
    "volumeattachments.storage.k8s.io": ("attached", True),
    "certificatesigningrequests.certificates.k8s.io": ("certificate", "LS0tLS0="),
    "validatingadmissionpolicies.admissionregistration.k8s.io": ("observedGeneration", 1),
    "resourceclaims.resource.k8s.io": ("reservedFor", [{"resource": "pods", "name": "x", "uid": "u"}]),
}


async def test_an_approval_writes_conditions_alone(api: InProcessApi):
    each = BY_PATH["certificates.k8s.io", "v1", "certificatesigningrequests"]
    created = api.succeed("POST", collection(each), example(each))
    assert created["spec"]["username"] == "admin"
    approval = {"type": "Approved", "status": "True", "reason": "Test", "lastUpdateTime": "2026-01-01T00:00:00Z"}
    created["status"] = {"conditions": [approval], "certificate": "LS0tLS0="}
    created["metadata"]["labels"] = {"mine": "ignored"}
    approved = api.succeed("PUT", f"{collection(each)}/x/approval", created)
    assert approved["status"] == {"conditions": [{**approval, "lastTransitionTime": approval["lastUpdateTime"]}]}
    assert approved["metadata"]["labels"] == {"app": "x"}


async def test_a_kind_without_rules_of_its_own_needs_the_fields_that_its_type_requires(api: InProcessApi):
    each = BY_PATH["networking.k8s.io", "v1", "ipaddresses"]
    lacking = {**example(each), "spec": {"parentRef": {"resource": "services"}}}
    status, answer = api("POST", collection(each), lacking)
    assert (status, [cause["field"] for cause in answer["details"]["causes"]]) == (422, ["spec.parentRef.name"])


async def test_an_autoscaler_is_one_object_under_both_versions(api: InProcessApi):
    older, newer = (BY_PATH["autoscaling", version, "horizontalpodautoscalers"] for version in ("v1", "v2"))
    wish = example(older)
    wish["spec"] = {**wish["spec"], "targetCPUUtilizationPercentage": 70}
    api.succeed("POST", collection(older), wish)
    seen = api.succeed("GET", f"{collection(newer)}/x")
    assert seen["apiVersion"] == "autoscaling/v2"
    assert seen["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"] == 70
    patch = {"spec": {"targetCPUUtilizationPercentage": 60}}
    api.succeed("PATCH", f"{collection(older)}/x", patch, "application/merge-patch+json")
    seen = api.succeed("GET", f"{collection(newer)}/x")
    assert seen["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"] == 60


@pytest.mark.parametrize("each", SCALABLE, ids=named)
async def test_a_scale_reads_and_writes_the_replicas(each: ServedResource, api: InProcessApi):
    created = api.succeed("POST", collection(each), example(each))
    path = f"{collection(each)}/{created['metadata']['name']}"
    scale = api.succeed("GET", f"{path}/scale")
    assert (scale["kind"], scale["spec"]["replicas"]) == ("Scale", 1)
    scale["spec"]["replicas"] = 3
    assert api.succeed("PUT", f"{path}/scale", scale)["spec"]["replicas"] == 3
    api.succeed("PATCH", f"{path}/scale", {"spec": {"replicas": 4}}, "application/merge-patch+json")
    assert api.succeed("GET", path)["spec"]["replicas"] == 4


@pytest.mark.parametrize("each", list(BY_PATH.values()), ids=named)
async def test_discovery_and_openapi_name_exactly_the_verbs_that_are_answered(each: ServedResource, api: InProcessApi):
    resource = each.resource
    root = f"apis/{resource.group}/{resource.version}" if resource.group else f"api/{resource.version}"
    document = get_discovery_document(root, "")
    assert document is not None
    told = {entry["name"]: set(entry["verbs"]) for entry in document[0]["resources"]}
    assert set(told) == {
        name
        for one in resources_of_version(resource.group, resource.version)
        for name in (one.resource.plural, *(f"{one.resource.plural}/{sub}" for sub in one.resource.subresources))
    }
    found = get_openapi_document(f"/openapi/v3/{root}", "application/json")
    assert found is not None
    paths = msgspec.json.decode(found[0])["paths"]
    methods = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
    for path, names, asked in (
        (collection(each), told[resource.plural], {"GET": "list", "POST": "create", "DELETE": "deletecollection"}),
        (f"{collection(each)}/x", told[resource.plural], {**methods, "POST": "post to an object"}),
        *((f"{collection(each)}/x/{sub}", told[f"{resource.plural}/{sub}"], methods) for sub in resource.subresources),
    ):
        for method, verb in asked.items():
            status, _ = api(method, path)
            no_such_path = status == 404 and each.verbs == CREATE_ONLY
            assert (status != 405 and not no_such_path) == (verb in names), (method, path, verb)
        template = path.replace("/namespaces/default/", "/namespaces/{namespace}/").replace(
            f"{resource.plural}/x", f"{resource.plural}/{{name}}"
        )
        described = {method for method in methods if method.lower() in paths.get(template, ())}
        assert described == {method for method, verb in asked.items() if verb in names}, template
    for sub in resource.subresources:
        assert set(subresource_verbs(sub)) == told[f"{resource.plural}/{sub}"]
