"""Adoption of pods that run already."""

from __future__ import annotations

from kubeloop.devcluster.kubelet.pods.pod_adoption import adopt_running
from support.simulation.simulated_pods import WALL, simulated_pod


def test_adopted_pod_keeps_restart_count_and_start_times():
    pod = simulated_pod()
    running = {"running": {"startedAt": "2025-12-31T00:00:00Z"}}
    entry = {"name": "web", "restartCount": 4, "ready": True, "state": running}
    pod.object["status"] = {"startTime": "2025-12-30T00:00:00Z", "containerStatuses": [entry]}
    adopt_running(pod, 100.0, WALL)
    (web,) = pod.runs
    assert (pod.start_time, web.since, web.restarts) == ("2025-12-30T00:00:00Z", "2025-12-31T00:00:00Z", 4)
    assert web.ready
    assert web.backoff_restarts == 4


def test_adopted_pod_keeps_ended_containers():
    pod = simulated_pod(restartPolicy="OnFailure", containers=[{"name": "done"}, {"name": "crashed"}])
    terminated = {"startedAt": WALL, "finishedAt": WALL, "exitCode": 0, "reason": "Completed"}
    entries = [
        {"name": "done", "state": {"terminated": terminated}},
        {
            "name": "crashed",
            "restartCount": 1,
            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {"terminated": {**terminated, "exitCode": 1}},
        },
    ]
    pod.object["status"] = {"startTime": WALL, "containerStatuses": entries}
    adopt_running(pod, 100.0, WALL)
    done, crashed = pod.runs
    assert (done.state, done.exit_code, done.ended) == ("terminated", 0, WALL)
    assert (crashed.state, crashed.reason, crashed.restart_at) == ("waiting", "CrashLoopBackOff", 110.0)
