"""Scenarios of Deployments, StatefulSets, DaemonSets and Jobs."""

from __future__ import annotations

from typing import Any

from kubeloop.kube.objects.resources import DEPLOYMENTS, JOBS
from support.faults.invariants import RolloutLimits
from support.faults.objects import JSON, manifest, pod_template, workload
from support.faults.scenario import UNTIL_SETTLED, Scenario, Step, create

_DEPLOYMENT = ("deployment", "replicaset", "scheduler")


def _deployment(image: str, *, replicas: int = 4, **spec: Any) -> JSON:
    rolling_update = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}}
    return workload(DEPLOYMENTS, "web", image=image, **{"replicas": replicas, "strategy": rolling_update, **spec})


def _job(name: str, **spec: Any) -> JSON:
    # also a pod that a user has created again, without the Job as its owner, must end
    template = pod_template(name, annotations={"run-seconds": "1"}, restartPolicy="Never")
    return manifest(JOBS, name, spec={"template": template, **spec})


SCENARIOS = (
    Scenario(
        "rollout",
        _DEPLOYMENT,
        (
            Step("apply app:1", create(_deployment("app:1"))),
            Step("apply app:2", create(_deployment("app:2")), UNTIL_SETTLED),
        ),
        invariants=(RolloutLimits,),
    ),
    Scenario(
        "job",
        ("job", "scheduler"),
        (Step("create an indexed Job", create(_job("work", completions=4, parallelism=2, completionMode="Indexed"))),),
    ),
)
