"""What a comparison with kube-apiserver v1.36.2 showed of other kinds, pinned where no kube-apiserver is at hand."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.api.served_resources import (
    INGRESSES,
    JOBS,
    NETWORK_POLICIES,
    RESOURCE_SLICES,
    RUNTIME_CLASSES,
    SERVICE_CIDRS,
    get_served_resource,
)
from kubeloop.devcluster.registry.strategies import prepare_for_status_update, prepare_for_update
from kubeloop.devcluster.validation.warnings.object_warnings import write_warnings
from kubeloop.kube.objects.resources import (
    CSI_DRIVERS,
    CSI_NODES,
    CSI_STORAGE_CAPACITIES,
    LEASES,
    NODES,
    PERSISTENT_VOLUMES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    REPLICATION_CONTROLLERS,
    RESOURCE_QUOTAS,
    SERVICES,
    STATEFUL_SETS,
    STORAGE_CLASSES,
    VOLUME_ATTACHMENTS,
    Resource,
)
from support.validation_causes import create_causes, update_causes

JSON = dict[str, Any]
PORTS = "must be between 1 and 65535, inclusive"


@pytest.mark.parametrize(
    ("resource", "spec", "told"),
    [
        (
            LEASES,
            {"leaseDurationSeconds": 0, "leaseTransitions": -1},
            [
                "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
                "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0",
            ],
        ),
        (
            PERSISTENT_VOLUMES,
            {
                "capacity": {"storage": "1"},
                "accessModes": ["ReadWriteOnce"],
                "iscsi": {"targetPortal": "p", "iqn": "x"},
            },
            ['spec.iscsi.iqn: Invalid value: "x": must be valid format'],
        ),
        (
            SERVICES,
            {"type": "ExternalName", "externalName": "a", "ports": [{"port": 0}]},
            [
                f"spec.ports[0].port: Invalid value: 0: {PORTS}",
                f"spec.ports[0].targetPort: Invalid value: 0: {PORTS}",
            ],
        ),
        (
            SERVICES,
            {"ports": [{"port": 1, "name": "a"}, {"port": 2, "name": "a"}], "sessionAffinity": "x"},
            [
                'spec.ports[1].name: Duplicate value: "a"',
                'spec.sessionAffinity: Unsupported value: "x": supported values: "ClientIP", "None"',
            ],
        ),
    ],
    ids=["lease", "volume", "external-name", "ports"],
)
def test_a_new_object_is_refused_in_kubernetes_words(resource: Resource[Any], spec: JSON, told: list[str]):
    assert create_causes(resource, {"metadata": {"name": "a"}, "spec": spec}) == told


def test_a_node_keeps_its_addresses_and_its_provider():
    old, new = (
        {"metadata": {"name": "a"}, "spec": {"podCIDR": cidr, "podCIDRs": [cidr], "providerID": provider}}
        for cidr, provider in (("10.0.0.0/24", "x"), ("10.0.1.0/24", "y"))
    )
    assert update_causes(NODES, old, new) == [
        'spec.podCIDRs: Forbidden: node updates may not change podCIDR except from "" to valid',
        'spec.providerID: Forbidden: node updates may not change providerID except from "" to valid',
    ]


def volume(**spec: Any) -> JSON:
    given = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/a"}, **spec}
    return {"metadata": {"name": "a"}, "spec": {name: each for name, each in given.items() if each is not None}}


def affinity(key: str) -> JSON:
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": key, "operator": "Exists"}]}]}}


def test_a_volume_keeps_its_source_and_the_difference_is_told_in_the_order_of_go():
    told = update_causes(PERSISTENT_VOLUMES, volume(), volume(hostPath=None, quobyte={"registry": "r", "volume": "v"}))
    assert told[0].startswith('spec.quobyte.registry: Invalid value: "r": must be a host:port pair')
    lines = told[-1].splitlines()
    assert lines[0].endswith("Forbidden: spec.persistentvolumesource is immutable after creation")
    gone = lines.index('- "Quobyte": null,')
    assert [lines[gone - 1].strip(), lines[gone + 9].strip()] == ['"RBD": null,', '"ISCSI": null,']


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone", True),
        ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone", False),
        ("a", "b", False),
    ],
)
def test_the_affinity_of_a_volume_takes_the_stable_label_alone(old: str, new: str, same: bool):
    told = update_causes(PERSISTENT_VOLUMES, volume(nodeAffinity=affinity(old)), volume(nodeAffinity=affinity(new)))
    assert [each.partition(":")[0] for each in told] == ([] if same else ["nodeAffinity"])


def test_a_volume_that_only_an_attachment_tells_of_is_a_persistent_one_with_less():
    inline = {"hostPath": {"path": "/a"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "x"}
    body = {"spec": {"attacher": "a.b", "nodeName": "n", "source": {"inlineVolumeSpec": inline}}}
    where = "spec.source.inlineVolumeSpec"
    assert create_causes(VOLUME_ATTACHMENTS, body) == [
        f"{where}.csi: Required value: has to be specified in the context of inline volumes",
        f"{where}.storageClassName: Forbidden: may not be specified in the context of inline volumes",
    ]


def named(label: str, **rest: Any) -> JSON:
    return {"metadata": {"name": "a", "labels": {"k": label}}, **rest}


@pytest.mark.parametrize(
    ("resource", "body", "times"),
    [
        (SERVICES, {"spec": {"ports": [{"port": 1}]}}, 3),  # the store, its update, the kind's update
        (STORAGE_CLASSES, {"provisioner": "a.b/c"}, 4),  # and the kind's own look at the whole
        (RUNTIME_CLASSES, {"handler": "h"}, 4),
        (CSI_STORAGE_CAPACITIES, {"storageClassName": "s"}, 4),
        (CSI_NODES, {"spec": {"drivers": []}}, 3),  # at the whole, and not at the change
        (POD_DISRUPTION_BUDGETS, {"spec": {"minAvailable": 1}}, 2),  # the store's alone
    ],
)
def test_metadata_is_looked_at_as_often_as_each_strategy_does(resource: Resource[Any], body: JSON, times: int):
    told = update_causes(resource, named("a", **body), named("-", **body))
    assert [each.partition(":")[0] for each in told] == ["metadata.labels"] * times


@pytest.mark.parametrize(
    ("resource", "old", "new", "told"),
    [
        (SERVICE_CIDRS, {"cidrs": ["10.0.0.0/24", "fd00::/64"]}, {},
            ["spec.cidrs: Invalid value: null: field is immutable"]),
        (NETWORK_POLICIES, {"podSelector": {}, "ingress": [{"from": [{"podSelector": {}}]}]},
            {"podSelector": {}, "ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": [""]}}]}]},
            ['spec.ingress[0].from[0].ipBlock.except[0]: Invalid value: "": must be a valid CIDR value,']),
    ],
)  # fmt: skip
def test_what_may_not_change_or_come(resource: Resource[Any], old: JSON, new: JSON, told: list[str]):
    assert update_causes(resource, {"spec": old}, {"spec": new}) == told


def test_an_update_is_looked_at_like_a_new_object_where_v1_36_does():
    spread = {"scheduling": {"tolerations": [{"operator": "Equal"}]}}
    assert update_causes(RUNTIME_CLASSES, {"handler": "h"}, {"handler": "h", **spread}) == [
        'scheduling.tolerations[0].operator: Invalid value: "Equal": operator must be Exists when `key` is empty, '
        'which means "match all values and all keys"'
    ]
    told = update_causes(CSI_STORAGE_CAPACITIES, {"storageClassName": "s"}, {"storageClassName": "S"})
    assert [each.partition(" (e.g.")[0].rpartition(": ")[2] for each in told] == [
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
        "and end with an alphanumeric character",
        "field is immutable",
    ]


def test_what_becomes_of_metadata_is_a_matter_of_the_kind():
    old: JSON = {"metadata": {"name": "a"}, "spec": {"requiresRepublish": True}}
    driver: JSON = {"metadata": {"name": "a"}, "spec": {"requiresRepublish": False}}
    prepare_for_update(get_served_resource(CSI_DRIVERS), driver, old, {})
    assert driver["metadata"]["generation"] == 1
    labelled = {"metadata": {"name": "a", "labels": {"a": "b"}}, "status": {"attached": True}}
    written = prepare_for_status_update(get_served_resource(VOLUME_ATTACHMENTS), labelled, old)
    assert (written["metadata"], written["status"]) == ({"name": "a"}, {"attached": True})


def test_the_swap_of_a_node_is_more_than_nothing_and_its_ranges_are_told_off_once():
    swap = {"status": {"nodeInfo": {"swap": {"capacity": 0}}}, "spec": {"podCIDRs": ["10.0.0.0/24"] * 2}}
    assert create_causes(NODES, swap) == [
        "metadata.nodeSwapStatus.capacity: Invalid value: 0: must be greater than zero",
        'spec.podCIDRs: Invalid value: ["10.0.0.0/24","10.0.0.0/24"]: '
        "may specify no more than one CIDR for each IP family",
    ]


def described(generation: int, image: str = "i", **spec: Any) -> JSON:
    containers = [{"name": "c", "image": image, "resources": {"limits": {"memory": "1m"}}}]
    template = {"metadata": {}, "spec": {"containers": containers if image == "i" else []}}
    return {"metadata": {"name": "a", "generation": generation}, "spec": {"template": template, **spec}}


FRACTION = 'fractional byte value "1m" is invalid, must be an integer'
OF_TEMPLATE = f"spec.template.spec.containers[0].resources.limits[memory]: {FRACTION}"


@pytest.mark.parametrize(
    ("resource", "old", "new", "told"),
    [
        (REPLICATION_CONTROLLERS, described(1, "x"), described(2), []),
        (REPLICATION_CONTROLLERS, described(1), described(2, "x"), [OF_TEMPLATE]),
        (STATEFUL_SETS, described(1), described(1), []),
        (STATEFUL_SETS, None, described(1, "x", volumeClaimTemplates=[
            {"spec": {"resources": {"requests": {"storage": "1m"}}}}]),
            [f"spec.volumeClaimTemplates[0].resources.requests[storage]: {FRACTION}"]),
        (STATEFUL_SETS, described(1), described(1, volumeClaimTemplates=[
            {"spec": {"resources": {"requests": {"storage": "1m"}}}}]),
            [f"spec.volumeClaimTemplates[0].Spec.resources.requests[storage]: {FRACTION}"]),
        (JOBS, described(1), described(2), [OF_TEMPLATE]),
    ],
)  # fmt: skip
def test_warnings_are_about_what_is_new_except_for_replication_controllers(
    resource: Resource[Any], old: JSON | None, new: JSON, told: list[str]
):
    assert write_warnings(resource, new, old) == told


MASTER = {"node-role.kubernetes.io/master": "a"}
USE = 'use "node-role.kubernetes.io/control-plane" instead'
TERM = {"matchExpressions": [{"key": next(iter(MASTER)), "operator": "In", "values": ["-"]}]}
ADDRESS = 'IPv6 address "1::00" should be in RFC 5952 canonical format ("1::")'


@pytest.mark.parametrize(
    ("resource", "body", "told"),
    [
        (RUNTIME_CLASSES, {"scheduling": {"nodeSelector": MASTER}}, [f"scheduling.nodeSelector: {USE}"]),
        (STORAGE_CLASSES, {"allowedTopologies": [{"matchLabelExpressions": TERM["matchExpressions"]}]},
            [f"allowedTopologies[0].matchLabelExpressions[0].key: {USE}"]),
        (CSI_STORAGE_CAPACITIES, {"nodeTopology": {**TERM, "matchLabels": MASTER}},
            [f"nodeTopology.matchExpressions[0].key: {next(iter(MASTER))} is {USE}",
             f"nodeTopology.matchLabels.{next(iter(MASTER))}: {USE}"]),
        (RESOURCE_QUOTAS, {"spec": {"hard": {"memory": "1024Mi", "limits.memory": "2", "requests.cpu": "1",
            "limits.cpu": "1"}}}, ["ResourceQuota memory (1Gi) should be less than limits.memory (2)"]),
        (RESOURCE_SLICES, {"spec": {"driver": "A.b"}},
            ['spec.driver: driver names should be lowercase; "A.b" contains uppercase characters']),
    ],
)  # fmt: skip
def test_labels_of_nodes_that_are_no_more_and_odd_values_are_told(resource: Resource[Any], body: JSON, told: list[str]):
    assert write_warnings(resource, {"metadata": {"name": "a"}, **body}) == told


def test_a_preference_for_values_that_no_label_can_have_is_told():
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": TERM}]}
    key, value = write_warnings(PODS, {"metadata": {"name": "a"}, "spec": {"affinity": {"nodeAffinity": preferred}}})
    assert key.endswith(f"matchExpressions[0].key: {next(iter(MASTER))} is {USE}")
    assert ".values[0]: - is invalid, a valid label must be an empty string or consist of" in value


@pytest.mark.parametrize(
    ("resource", "status", "told"),
    [
        (SERVICES, {"loadBalancer": {"ingress": [{"hostname": "a"}, {"ip": "1::00"}]}},
            [f"status.loadBalancer.ingress[1]: {ADDRESS}"]),
        (INGRESSES, {"loadBalancer": {"ingress": [{"ip": "1::00"}]}}, [f"status.loadBalancer.ingress[0]: {ADDRESS}"]),
        (PODS, {"podIPs": [{"ip": "1::00"}], "hostIPs": [{"ip": "1.2.3.4"}]}, [f"status.podIPs[0].ip: {ADDRESS}"]),
        (NODES, {}, []),
    ],
)  # fmt: skip
def test_a_status_has_warnings_of_its_own(resource: Resource[Any], status: JSON, told: list[str]):
    obj = {"metadata": {"name": "a"}, "spec": {"externalID": "x"}, "status": status}
    assert write_warnings(resource, obj, obj, subresource="status") == told


def finished(*kinds: str, **status: Any) -> JSON:
    conditions = [{"type": kind, "status": "True"} for kind in kinds]
    return {"spec": {"template": {}, "completions": 4}, "status": {"conditions": conditions, **status}}


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (finished(), finished("Complete"), [
            "status.completionTime: Required value: completionTime is required for Complete jobs",
            "status.conditions: Invalid value: cannot set Complete=True condition without the SuccessCriteriaMet=true "
            "condition",
            "status.startTime: Required value: startTime is required for finished job"]),
        (finished("Failed"), finished(), [
            "status.conditions: Invalid value: cannot disable the terminal Failed=True condition"]),
        (finished(failed=2), finished(failed=1, ready=1), [
            "status.ready: Invalid value: 1: cannot set more ready pods than active",
            "status.failed: Invalid value: 1: cannot decrease the failed counter"]),
        (finished(), finished(completedIndexes="1,0-9"), [
            'status.completedIndexes: Invalid value: "1,0-9": error parsing completedIndexes: too large index: "9"',
            'status.completedIndexes: Invalid value: "1,0-9": cannot set non-empty completedIndexes when non-indexed '
            "completion mode"]),
        (finished(), finished(completedIndexes="0,2-3", failedIndexes="1,3"), [
            'status.completedIndexes: Invalid value: "0,2-3": cannot set non-empty completedIndexes when non-indexed '
            "completion mode",
            'status.failedIndexes: Invalid value: "1,3": cannot set non-null failedIndexes when backoffLimitPerIndex '
            "is null",
            'status.failedIndexes: Invalid value: "1,3": failedIndexes and completedIndexes overlap at index: 3']),
        (finished(completedIndexes="x"), finished(completedIndexes="x", active=1), []),
    ],
)  # fmt: skip
def test_the_status_of_a_job_goes_one_way(old: JSON, new: JSON, told: list[str]):
    assert update_causes(JOBS, old, new, "status") == told


def test_an_older_job_may_be_without_the_labels_that_came_later():
    selector = {"matchLabels": {"controller-uid": "u"}}
    old, new = ({"spec": {"template": {"metadata": {"labels": {"controller-uid": "u", "job-name": "x"}}, "spec": {
        "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}, "selector": selector, **more}}
        for more in ({"completions": 3}, {"completions": 3, "parallelism": 2}))  # fmt: skip
    assert update_causes(JOBS, old, new) == []
    assert len(create_causes(JOBS, new)) == 2


def test_topologies_that_say_nothing_are_duplicates_of_as_many_as_there_are():
    body = {"provisioner": "a.b/c", "allowedTopologies": [{}, {}]}
    one, other = (f'allowedTopologies[{i}].matchLabelExpressions: Duplicate value: ""' for i in (0, 1))
    assert create_causes(STORAGE_CLASSES, body) == [one, one, other, other, other]


def test_the_name_of_a_replication_controller_is_counted_in_bytes():
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    body = {"metadata": {"name": "a" * 254}, "spec": {"selector": {"a": "b"}, "template": template}}
    told = create_causes(REPLICATION_CONTROLLERS, body)
    assert [each.rpartition(": ")[2] for each in told] == ["must be no more than 253 bytes"]
