"""Reconciles of objects that are gone, in every controller whose queue stores reasons."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from kubeloop.controllers.cronjob.cron_job_controller import CronJobController
from kubeloop.controllers.daemonset.daemon_set_controller import DaemonSetController
from kubeloop.controllers.deployment.deployment_controller import DeploymentController
from kubeloop.controllers.endpoint.endpoints_controller import EndpointsController
from kubeloop.controllers.endpointslice.endpoint_slice_controller import EndpointSliceController
from kubeloop.controllers.endpointslicemirroring.mirroring_controller import EndpointSliceMirroringController
from kubeloop.controllers.job.job_controller import JobController
from kubeloop.controllers.podautoscaler.horizontal_controller import HorizontalController
from kubeloop.controllers.replicaset.replica_set_controller import ReplicaSetController
from kubeloop.controllers.statefulset.stateful_set_controller import StatefulSetController
from kubeloop.process.control_plane.controller_table import default_options

CONTROLLERS = (
    CronJobController,
    DaemonSetController,
    DeploymentController,
    EndpointsController,
    EndpointSliceController,
    EndpointSliceMirroringController,
    HorizontalController,
    JobController,
    ReplicaSetController,
    StatefulSetController,
)


@pytest.mark.virtual_time
@pytest.mark.parametrize("new_controller", CONTROLLERS)
async def test_reconcile_of_a_deleted_object_clears_its_reasons(fake_apiserver, new_controller: Any):
    controller = new_controller(structs.replace(fake_apiserver.context, options=default_options()))
    controller.queue.add("ns/gone", "object deleted")
    assert await controller.reconcile("ns/gone") is None
    assert controller.queue.pop_reasons("ns/gone") == "retry or time"
