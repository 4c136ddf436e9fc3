"""kubeloop/recording/anonymization.py: names are replaced, and what refers to them still does."""

from __future__ import annotations

import msgspec

from kubeloop.recording.anonymization import Anonymizer
from kubeloop.recording.projection import project
from support.objects.recorded_objects import deployment, node, pod

ANONYMIZER = Anonymizer(b"key")
name = ANONYMIZER.name


def anonymized(obj):
    return ANONYMIZER.object(obj["kind"], project(obj["kind"], obj))


def test_same_key_gives_the_same_names():
    assert Anonymizer(b"key").name("checkout-web") == name("checkout-web") != "checkout-web"
    assert Anonymizer(b"other").name("checkout-web") != name("checkout-web")
    assert Anonymizer(b"other").key_id != ANONYMIZER.key_id


def test_names_that_are_built_from_others_still_are():
    assert name("data-db-0") == f"{name('data')}-{name('db')}-0"
    assert name("web-7d4b9c-x2k8p").startswith(f"{name('web-7d4b9c')}-")
    assert name("web-") == f"{name('web')}-"


def test_reserved_names_and_numbers_stay():
    for unchanged in ("default", "kube-system", "system-node-critical", "", "17", "true"):
        assert name(unchanged) == unchanged


def test_replacements_are_valid_names():
    long = "-".join(f"p{number}" for number in range(30))
    assert len(name(long)) <= 63
    assert name(long)[0].isalpha()


def test_nothing_but_reserved_names_is_left():
    objects = [node("worker-eu-1", images=[{"names": ["registry.example.com/shop/web:1.4"]}]), deployment("checkout")]
    bound = pod("checkout-1", "worker-eu-1")
    bound["spec"]["priorityClassName"] = "gold"
    bound["spec"]["nodeSelector"] = {"tier": "frontend"}
    bound["status"]["podIP"] = "192.168.7.7"
    text = msgspec.json.encode([anonymized(obj) for obj in (*objects, bound)]).decode()
    for real in ("worker", "eu", "registry", "shop", "checkout", "gold", "frontend", "192.168", "zone-a", '"web"'):
        assert real not in text


def test_selectors_match_the_same_objects():
    web = deployment("checkout")
    web["spec"]["template"]["spec"]["affinity"] = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["zone-a"]}]},
                    {"matchExpressions": [{"key": "cores", "operator": "Gt", "values": ["eight"]}]},
                ]
            }
        }
    }
    result = anonymized(web)["spec"]
    assert result["selector"]["matchLabels"] == {"app": name("checkout")} == result["template"]["metadata"]["labels"]
    affinity = result["template"]["spec"]["affinity"]["nodeAffinity"]
    terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    labels = anonymized(node("worker-1"))["metadata"]["labels"]
    assert terms[0]["matchExpressions"][0]["values"] == [labels["topology.kubernetes.io/zone"]]
    assert terms[1]["matchExpressions"][0]["values"] == ["eight"]


def test_references_between_objects_stay():
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": "data-db-0",
            "namespace": "shop",
            "annotations": {"volume.kubernetes.io/selected-node": "worker-1"},
        },
        "spec": {"volumeName": "pvc-1a", "storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}}},
    }
    user = pod("db-0", "worker-1")
    user["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data-db-0"}}]
    result, spec = anonymized(claim), anonymized(user)["spec"]
    assert spec["volumes"][0]["persistentVolumeClaim"]["claimName"] == result["metadata"]["name"]
    assert spec["nodeName"] == anonymized(node("worker-1"))["metadata"]["name"]
    assert result["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] == spec["nodeName"]
    assert result["spec"]["resources"] == {"requests": {"storage": "1Gi"}}


def test_names_of_resources_metrics_and_classes_of_devices_stay():
    quota = {
        "kind": "ResourceQuota",
        "metadata": {"name": "q"},
        "spec": {"hard": {"fast.storageclass.storage.k8s.io/requests.storage": "1", "pods": "2"}},
    }
    assert anonymized(quota)["spec"]["hard"] == {
        f"{name('fast')}.storageclass.storage.k8s.io/requests.storage": "1",
        "pods": "2",
    }
    metric = {"name": "queue_length", "selector": {"matchLabels": {"queue": "checkout"}}}
    hpa = {
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "h"},
        "spec": {
            "scaleTargetRef": {"kind": "Deployment", "name": "checkout"},
            "metrics": [{"type": "Resource", "resource": {"name": "cpu"}}, {"external": {"metric": metric}}],
        },
    }
    assert anonymized(hpa)["spec"] == {
        "scaleTargetRef": {"kind": "Deployment", "name": name("checkout")},
        "metrics": [
            {"type": "Resource", "resource": {"name": "cpu"}},
            {"external": {"metric": {**metric, "selector": {"matchLabels": {"queue": name("checkout")}}}}},
        ],
    }
    assert anonymized({"kind": "DeviceClass", "metadata": {"name": "gpu"}})["metadata"]["name"] == "gpu"
    slice_ = {
        "kind": "ResourceSlice",
        "metadata": {"name": "s"},
        "spec": {
            "nodeName": "worker-1",
            "pool": {"name": "worker-1"},
            "driver": "gpu.example.com",
            "devices": [{"name": "gpu-0"}],
        },
    }
    assert anonymized(slice_)["spec"] == {
        "nodeName": name("worker-1"),
        "pool": {"name": name("worker-1")},
        "driver": "gpu.example.com",
        "devices": [{"name": "gpu-0"}],
    }
    csi_node = {
        "kind": "CSINode",
        "metadata": {"name": "worker-1"},
        "spec": {"drivers": [{"name": "ebs.csi.aws.com", "nodeID": "i-1"}]},
    }
    assert anonymized(csi_node)["spec"] == {"drivers": [{"name": "ebs.csi.aws.com", "nodeID": name("i-1")}]}
    service = {
        "kind": "Service",
        "metadata": {"name": "s"},
        "spec": {"clusterIP": "10.0.0.7", "clusterIPs": ["10.0.0.7"], "selector": {"app": "checkout"}},
    }
    spec = anonymized(service)["spec"]
    assert spec["clusterIPs"] == [spec["clusterIP"]] != ["10.0.0.7"]
    assert spec["selector"] == {"app": name("checkout")}


def test_taints_and_tolerations_still_match():
    tainted, tolerant = node("worker-1"), pod("web-1")
    tainted["spec"]["taints"] = [{"key": "team", "value": "payments", "effect": "NoSchedule"}]
    tolerant["spec"]["tolerations"] = [{"key": "team", "value": "payments"}, {"operator": "Exists"}]
    (taint,) = anonymized(tainted)["spec"]["taints"]
    tolerations = anonymized(tolerant)["spec"]["tolerations"]
    assert tolerations == [{"key": "team", "value": taint["value"]}, {"operator": "Exists"}]
    assert taint["value"] != "payments"
