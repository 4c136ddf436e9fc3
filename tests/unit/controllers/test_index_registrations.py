"""Indexes that each controller adds to the stores when it is created, before they are full.

An index that is added later is built over all objects at once, which blocks the event loop in a large cluster.
"""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from msgspec import structs

from kubeloop.controllers.api.runner import new_controller
from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.process.control_plane.controller_table import CONTROLLERS_BY_NAME, default_options
from support.apiserver.fake_apiserver import FakeApiServer

NAMESPACES, CLAIMS = {"pods": {"namespace"}}, {"pods": {"volume-claim"}}
OWNED_PODS = {"pods": {"controller"}}
REVISIONS = {"controllerrevisions.apps": {"controller"}}
SLICES = "endpointslices.discovery.k8s.io"
SELECTED_PODS = {"services": {"selector-label"}, "pods": {"labels"}}
RELATED_PODS = {"pods": {"namespace", "template-hash"}}

INDEXES: dict[str, dict[str, set[str]]] = {
    "deployment": {"deployments.apps": {"namespace"}, "replicasets.apps": {"controller"}, **OWNED_PODS},
    "replicaset": {"replicasets.apps": {"namespace", "owner"}, **RELATED_PODS},
    "replicationcontroller": {"replicationcontrollers": {"namespace", "owner"}, **RELATED_PODS},
    "daemonset": {"daemonsets.apps": {"namespace"}, **OWNED_PODS, **REVISIONS},
    "statefulset": {"statefulsets.apps": {"namespace"}, **OWNED_PODS, **REVISIONS},
    "job": {"jobs.batch": {"namespace"}, **OWNED_PODS},
    "cronjob": {"jobs.batch": {"controller-name"}},
    "horizontalpodautoscaling": NAMESPACES,
    "disruption": {"poddisruptionbudgets.policy": {"selector-label"}, "pods": {"namespace", "labels"}},
    "endpoint": SELECTED_PODS,
    "endpointslice": {SLICES: {"endpointslice-controller.k8s.io"}, **SELECTED_PODS},
    "endpointslicemirroring": {SLICES: {"endpointslicemirroring-controller.k8s.io"}},
    "nodelifecycle": {"pods": {"node"}},
    "taint-eviction": {"pods": {"node"}},
    "persistentvolume-binder": {
        "persistentvolumeclaims": {"waiting-for"},
        "persistentvolumes": {"claim-ref", "free-by-class"},
        **CLAIMS,
    },
    "pvc-protection": {
        "persistentvolumeclaims": {"pvcprotection/in deletion"},
        "pods": {"pvcprotection/claim"},
    },
    "ephemeral-volume": {"pods": {"ephemeralvolume/claim"}},
    "volumeattributesclass-protection": {
        "persistentvolumes": {"vacprotection/class"},
        "persistentvolumeclaims": {"vacprotection/class"},
    },
    "resource-claim-controller": {
        "pods": {"resource-claim", "resource-claim-template"},
        "resourceclaims.resource.k8s.io": {"owner"},
    },
    "clusterrole-aggregation": {"clusterroles.rbac.authorization.k8s.io": {"clusterroleaggregation/aggregated"}},
    "svm": {"storageversionmigrations.storagemigration.k8s.io": {"migration-target"}},
    "podgroup-protection": {"pods": {"podgroupprotection/active"}},
}


def indexes_of(name: str, **gates: bool) -> dict[str, set[str]]:
    """Return the indexes by resource after a controller alone was created."""
    descriptor, server = CONTROLLERS_BY_NAME[name], FakeApiServer(gates=FeatureGates(gates))
    factory: Any = getattr(importlib.import_module(descriptor.module), descriptor.factory.partition(":")[2])
    context = structs.replace(server.context, options=default_options())
    new_controller(factory, context)
    return {
        informer.resource.group_resource: set(informer.store._index_functions)
        for informer in context.informers.informers
        if informer.store._index_functions
    }


@pytest.mark.virtual_time
@pytest.mark.parametrize("name", INDEXES)
async def test_controller_adds_its_indexes_when_it_is_created(name):
    gate = CONTROLLERS_BY_NAME[name].feature_gate
    assert indexes_of(name, **({gate: True} if gate else {})) == INDEXES[name]


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("name", "gate", "indexes"),
    [
        (
            "job",
            "WorkloadWithJob",
            {
                "workloads.scheduling.k8s.io": {"workload by Job"},
                "podgroups.scheduling.k8s.io": {"pod group by Workload"},
            },
        ),
        (
            "resource-claim-controller",
            "DRAWorkloadResourceClaims",
            {
                "pods": {"pod-group"},
                "podgroups.scheduling.k8s.io": {"resource-claim", "resource-claim-template"},
            },
        ),
        ("device-taint-eviction", "DRAWorkloadResourceClaims", {"pods": {"pod-group"}}),
    ],
)
async def test_feature_gate_adds_indexes(name, gate, indexes):
    before, after = indexes_of(name), indexes_of(name, GenericWorkload=True, **{gate: True})
    added = {resource: names - before.get(resource, set()) for resource, names in after.items()}
    assert {resource: names for resource, names in added.items() if names} == indexes
