"""Every kind with every verb and subresource: discovery and OpenAPI agree with the requests that are served."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from kubeloop.devcluster.api.served_resources import (
    BY_PATH,
    CREATE_ONLY,
    ServedResource,
    all_api_gates,
    resources_of_version,
)
from kubeloop.devcluster.api.subresources import subresource_verbs
from kubeloop.devcluster.openapi.discovery import get_discovery_document
from kubeloop.devcluster.openapi.documents import get_openapi_document
from kubeloop.devcluster.server.apiserver import ServingSettings
from kubeloop.kube.feature_gates import FeatureGates
from support.apiserver.api_requests import InProcessApi
from support.objects.certificate_requests import certificate, signing_request

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
CERTIFICATE = certificate(datetime(2030, 1, 1, tzinfo=UTC))
TAINT = {"key": "example.com/broken", "effect": "NoExecute"}
CONTENT: dict[str, JSON] = {
    "storageversionmigrations.storagemigration.k8s.io": {
        "spec": {"resource": {"group": "apps", "resource": "deployments"}}
    },
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
    "workloads.scheduling.k8s.io": {
        "spec": {"podGroupTemplates": [{"name": "t", "schedulingPolicy": {"gang": {"minCount": 2}}}]}
    },
    "devicetaintrules.resource.k8s.io": {"spec": {"deviceSelector": {"driver": "gpu.example.com"}, "taint": TAINT}},
    "podgroups.scheduling.k8s.io": {"spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}},
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
    "certificatesigningrequests.certificates.k8s.io": {"spec": signing_request(signer="example.com/s")["spec"]},
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
STORED = [
    served for served in BY_PATH.values() if served.is_stored and served.resource.kind != "CustomResourceDefinition"
]
"""CustomResourceDefinitions are tested in apiextensions/."""
WITH_STATUS = [served for served in STORED if served.has_status]
SCALABLE = [served for served in STORED if "scale" in served.resource.subresources]
PROTECTED = ("Namespace", "PodGroup", "PersistentVolume", "PersistentVolumeClaim", "VolumeAttributesClass")
PATCHES = {"json": "json-patch+json", "merge": "merge-patch+json", "strategic": "strategic-merge-patch+json"}


def resource_id(served: ServedResource) -> str:
    return f"{served.resource.plural}.{served.resource.api_version}"


@pytest.fixture
async def api() -> InProcessApi:
    gates = FeatureGates(dict.fromkeys(all_api_gates(), True))
    settings = ServingSettings(feature_gates=gates)
    return InProcessApi(default_headers={"user_agent": "tests/1"}, settings=settings)


def collection(served: ServedResource) -> str:
    return served.resource.path("default" if served.resource.namespaced else "")


def example(served: ServedResource, name: str = "") -> JSON:
    resource = served.resource
    name = name or NAMES.get(resource.group_resource, "x")
    metadata: JSON = {"name": name, "labels": {"app": "x"}}
    if resource.namespaced:
        metadata["namespace"] = "default"
    content = CONTENT.get(resource.group_resource, {})
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **content}


async def first_events(stream: AsyncIterator[bytes], count: int) -> list[tuple[str, JSON]]:
    """Return type and object of the first `count` events of a watch."""
    events: list[tuple[str, JSON]] = []
    async for chunk in stream:
        for line in chunk.splitlines():
            event = msgspec.json.decode(line)
            events.append((event["type"], event["object"]))
        if len(events) >= count:
            break
    await stream.aclose()  # type: ignore[attr-defined]
    return events


@pytest.mark.parametrize("served", STORED, ids=resource_id)
async def test_every_kind_supports_all_verbs(served: ServedResource, api: InProcessApi):
    sent = example(served)
    created = api.succeed("POST", collection(served), sent)
    path = f"{collection(served)}/{created['metadata']['name']}"
    assert (created["apiVersion"], created["kind"]) == (served.resource.api_version, served.resource.kind)
    assert created["metadata"].get("generation", 0) == bool(served.generation)
    assert api.succeed("GET", path) == created

    listed = api.succeed("GET", f"{collection(served)}?labelSelector=app%3Dx")
    assert listed["kind"] == served.list_kind
    assert [item["metadata"]["uid"] for item in listed["items"]] == [created["metadata"]["uid"]]
    watch = api.succeed("GET", f"{collection(served)}?watch=1&resourceVersion={listed['metadata']['resourceVersion']}")

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
    config = {
        "apiVersion": sent["apiVersion"],
        "kind": sent["kind"],
        "metadata": {"name": sent["metadata"]["name"], "annotations": {"applied": "yes"}},
    }
    applied = api.succeed("PATCH", f"{path}?fieldManager=me", config, "application/apply-patch+yaml")
    assert applied["metadata"]["annotations"].items() >= {"by": "strategic", "applied": "yes"}.items()
    owners = {(entry["manager"], entry["operation"]) for entry in applied["metadata"]["managedFields"]}
    assert owners == {("tests", "Update"), ("me", "Apply")}
    assert all(entry["apiVersion"] == sent["apiVersion"] for entry in applied["metadata"]["managedFields"])

    assert (await api.handle("DELETE", path))[0] in (200, 202)
    if api("GET", path)[0] == 200:  # a finalizer delays the deletion
        assert served.resource.kind in PROTECTED or served.dependents == "orphaned"
        return
    events = await first_events(watch, 6)
    assert [type_ for type_, _ in events][:5] == ["MODIFIED"] * 5
    assert events[-1][0] == "DELETED"
    assert {(obj["apiVersion"], obj["kind"]) for _, obj in events} == {(sent["apiVersion"], sent["kind"])}


@pytest.mark.parametrize("served", STORED, ids=resource_id)
async def test_every_kind_supports_apply_tables_and_deletecollection(served: ServedResource, api: InProcessApi):
    config = example(served)
    path = f"{collection(served)}/{config['metadata']['name']}"
    api.succeed("PATCH", f"{path}?fieldManager=me", config, "application/apply-patch+yaml")
    table = api.succeed("GET", collection(served), accept="application/json;as=Table;v=v1;g=meta.k8s.io")
    rows = [row["cells"] for row in table["rows"]]
    assert any(config["metadata"]["name"] in row for row in rows)
    extra_cells = 1 if served.resource.kind == "IPAddress" else 0  # v1.36 does not define the column of their age
    assert all(len(row) == len(table["columnDefinitions"]) + extra_cells for row in rows)
    metadata = api.succeed("GET", path, accept="application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io")
    assert metadata["metadata"]["labels"]["app"] == "x"
    status, _ = api("DELETE", f"{collection(served)}?labelSelector=app%3Dx")
    assert status == (200 if "deletecollection" in served.verbs else 405)
    if status == 200:
        remaining = api("GET", path)[1]
        assert remaining.get("code") == 404 or "deletionTimestamp" in remaining["metadata"]


@pytest.mark.parametrize("served", WITH_STATUS, ids=resource_id)
async def test_status_is_only_written_through_its_subresource(served: ServedResource, api: InProcessApi):
    created = api.succeed("POST", collection(served), example(served))
    path = f"{collection(served)}/{created['metadata']['name']}"
    field, value = STATUS.get(served.resource.group_resource, ("conditions", [CONDITION]))
    spec_before = created.get("spec")
    ignored = api.succeed("PUT", path, {**created, "status": {**(created.get("status") or {}), field: value}})
    assert (ignored.get("status") or {}) == (created.get("status") or {}) or served.resource.kind == "Node"
    written = api.succeed("PATCH", f"{path}/status", {"status": {field: value}}, "application/merge-patch+json")
    assert written["status"][field] == value
    updated = api.succeed("PUT", f"{path}/status", written)
    assert (updated["status"], updated.get("spec")) == (written["status"], spec_before)
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
    "certificatesigningrequests.certificates.k8s.io": ("certificate", CERTIFICATE),
    "validatingadmissionpolicies.admissionregistration.k8s.io": ("observedGeneration", 1),
    "resourceclaims.resource.k8s.io": ("allocation", {"devices": {}}),
}


async def test_approval_writes_conditions_and_labels(api: InProcessApi):
    served = BY_PATH["certificates.k8s.io", "v1", "certificatesigningrequests"]
    created = api.succeed("POST", collection(served), example(served))
    assert created["spec"]["username"] == "admin"
    approval = {"type": "Approved", "status": "True", "reason": "Test", "lastUpdateTime": "2026-01-01T00:00:00Z"}
    created["status"] = {"conditions": [approval], "certificate": CERTIFICATE}
    created["metadata"]["labels"] = {"mine": "stored"}
    approved = api.succeed("PUT", f"{collection(served)}/x/approval", created)
    (condition,) = approved["status"].pop("conditions")
    assert condition.pop("lastTransitionTime") > approval["lastUpdateTime"]
    assert (condition, approved["status"]) == (approval, {})
    assert approved["metadata"]["labels"] == {"mine": "stored"}


async def test_required_fields_of_type_are_validated(api: InProcessApi):
    served = BY_PATH["networking.k8s.io", "v1", "ipaddresses"]
    invalid = {**example(served), "spec": {"parentRef": {"resource": "services"}}}
    status, status_object = api("POST", collection(served), invalid)
    assert (status, [cause["field"] for cause in status_object["details"]["causes"]]) == (422, ["spec.parentRef.name"])


async def test_autoscaler_is_one_object_in_both_versions(api: InProcessApi):
    older, newer = (BY_PATH["autoscaling", version, "horizontalpodautoscalers"] for version in ("v1", "v2"))
    autoscaler = example(older)
    autoscaler["spec"] = {**autoscaler["spec"], "targetCPUUtilizationPercentage": 70}
    api.succeed("POST", collection(older), autoscaler)
    converted = api.succeed("GET", f"{collection(newer)}/x")
    assert converted["apiVersion"] == "autoscaling/v2"
    assert converted["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"] == 70
    patch = {"spec": {"targetCPUUtilizationPercentage": 60}}
    api.succeed("PATCH", f"{collection(older)}/x", patch, "application/merge-patch+json")
    converted = api.succeed("GET", f"{collection(newer)}/x")
    assert converted["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"] == 60


@pytest.mark.parametrize("served", SCALABLE, ids=resource_id)
async def test_scale_reads_and_writes_replicas(served: ServedResource, api: InProcessApi):
    created = api.succeed("POST", collection(served), example(served))
    path = f"{collection(served)}/{created['metadata']['name']}"
    scale = api.succeed("GET", f"{path}/scale")
    assert (scale["kind"], scale["spec"]["replicas"]) == ("Scale", 1)
    scale["spec"]["replicas"] = 3
    assert api.succeed("PUT", f"{path}/scale", scale)["spec"]["replicas"] == 3
    api.succeed("PATCH", f"{path}/scale", {"spec": {"replicas": 4}}, "application/merge-patch+json")
    assert api.succeed("GET", path)["spec"]["replicas"] == 4


@pytest.mark.parametrize("served", list(BY_PATH.values()), ids=resource_id)
async def test_discovery_and_openapi_list_exactly_the_served_verbs(served: ServedResource, api: InProcessApi):
    resource = served.resource
    root = f"apis/{resource.group}/{resource.version}" if resource.group else f"api/{resource.version}"
    document = get_discovery_document(root, "", all_api_gates())
    assert document is not None
    verbs_by_name = {entry["name"]: set(entry["verbs"]) for entry in document[0]["resources"]}
    assert set(verbs_by_name) == {
        name
        for sibling in resources_of_version(resource.group, resource.version, all_api_gates())
        for name in (
            sibling.resource.plural,
            *(f"{sibling.resource.plural}/{sub}" for sub in sibling.resource.subresources),
        )
    }
    openapi = get_openapi_document(f"/openapi/v3/{root}", "application/json", gates=all_api_gates())
    assert openapi is not None
    paths = msgspec.json.decode(openapi[0])["paths"]
    methods = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
    for path, names, requested in (
        (
            collection(served),
            verbs_by_name[resource.plural],
            {"GET": "list", "POST": "create", "DELETE": "deletecollection"},
        ),
        (f"{collection(served)}/x", verbs_by_name[resource.plural], {**methods, "POST": "post to an object"}),
        *(
            (f"{collection(served)}/x/{sub}", verbs_by_name[f"{resource.plural}/{sub}"], methods)
            for sub in resource.subresources
        ),
    ):
        for method, verb in requested.items():
            status, _ = api(method, path)
            no_such_path = status == 404 and served.verbs == CREATE_ONLY
            assert (status != 405 and not no_such_path) == (verb in names), (method, path, verb)
        template = path.replace("/namespaces/default/", "/namespaces/{namespace}/").replace(
            f"{resource.plural}/x", f"{resource.plural}/{{name}}"
        )
        described = {method for method in methods if method.lower() in paths.get(template, ())}
        assert described == {method for method, verb in requested.items() if verb in names}, template
    for sub in resource.subresources:
        assert set(subresource_verbs(sub)) == verbs_by_name[f"{resource.plural}/{sub}"]
