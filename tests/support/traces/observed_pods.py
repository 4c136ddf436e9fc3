"""A pod of another control plane, as kube-apiserver, kube-scheduler and the kubelet write it and its Events.

Times are seconds since START, which is 0.4 s after a whole second: timestamps of objects are truncated to seconds,
except those of kube-scheduler's Events. A state or Event arrives LAG_SECONDS after it was written.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

from kubeloop.kube.objects.observed_types import ObservedEvent, ObservedNode, ObservedPod

START = datetime(2026, 1, 1, 12, 0, 0, 400_000, tzinfo=UTC)
START_NS = int(START.timestamp() * 1000) * 1_000_000
LAG_SECONDS = 0.01
SECOND = 1_000_000_000
NODE = "node-1"


def ns(seconds):
    return START_NS + round(seconds * 1e9)


def timestamp(seconds):
    """Return metav1.Time, in whole seconds."""
    return (START + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_time(seconds):
    return (START + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class PodStory:
    """Writes the states and Events of one pod, and passes them to `observer` unless it is None.

    `states`, `events`: all that was written, with their arrivals. `kubelet`: "v1.36" or "v1.27", which differ in
    conditions and messages. `at`: the present, in seconds since START.
    """

    def __init__(
        self, observer=None, *, name="web-5f-abcde", uid="", containers=("app",), init=(), kubelet="v1.36", **metadata
    ):
        """containers: names, or dicts in the notation of the API. metadata: further fields, in snake_case."""
        self.observer = observer
        self.kubelet = kubelet
        self.at = 0.0
        self.states = []
        self.events = []
        self.uid = uid or f"uid of {name}"
        self._version = 100
        self._event_number = 0
        specs = [self._container(container) for container in containers]
        init_specs = [self._container(container) for container in init]
        self.pod = {
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": "shop",
                "uid": self.uid,
                "creationTimestamp": timestamp(0),
                "labels": {"app": "web", "pod-template-hash": "5f"},
                "ownerReferences": [{"kind": "ReplicaSet", "name": "web-5f", "uid": "rs-uid", "controller": True}],
                **metadata,
            },
            "spec": {
                "schedulerName": "default-scheduler",
                "containers": specs,
                "initContainers": init_specs,
                "volumes": [{"name": "kube-api-access", "projected": {"sources": []}}],
            },
            "status": {"phase": "Pending", "qosClass": "BestEffort"},
        }

    @staticmethod
    def _container(container):
        return {"name": container, "image": f"{container}:1"} if isinstance(container, str) else container

    # --- writing and delivery --------------------------------------------------------------------------------------

    def write(self, *, initial=False, lag=LAG_SECONDS):
        """Write the state as it is now."""
        self._version += 1
        self.pod["metadata"]["resourceVersion"] = str(self._version)
        pod = msgspec.convert(self.pod, ObservedPod)
        arrival_ns = ns(self.at + lag)
        self.states.append((pod, arrival_ns))
        if self.observer is not None:
            self.observer.pod_observed(pod, arrival_ns, initial=initial)
        return self

    def after(self, seconds):
        self.at = round(self.at + seconds, 6)
        return self

    def event(self, reason, message, *, container="", init=False, component="kubelet", count=1, first=None, lag=0.02):
        """Record an Event now; `first`: when it was recorded for the first time, if `count` is more."""
        self._event_number += 1
        field = f"spec.{'initContainers' if init else 'containers'}{{{container}}}" if container else ""
        body = {
            "metadata": {
                "name": f"web.{self._event_number}",
                "namespace": "shop",
                "uid": f"event-{self._event_number}",
            },
            "involvedObject": {"kind": "Pod", "namespace": "shop", "uid": self.uid, "fieldPath": field},
            "reason": reason,
            "message": message,
        }
        if component == "kubelet":
            body |= {
                "source": {"component": "kubelet", "host": NODE},
                "firstTimestamp": timestamp(self.at if first is None else first),
                "lastTimestamp": timestamp(self.at),
                "eventTime": None,
                "count": count,
            }
        else:
            body |= {"reportingComponent": component, "source": {}, "eventTime": micro_time(self.at)}
            if count > 1:
                body |= {"eventTime": micro_time(first)}
                body["series"] = {"count": count, "lastObservedTime": micro_time(self.at)}
        event = msgspec.convert(body, ObservedEvent)
        self.events.append((event, ns(self.at + lag)))
        if self.observer is not None:
            self.observer.event_observed(event, ns(self.at + lag))
        return self

    # --- API server and scheduler ----------------------------------------------------------------------------------

    def condition(self, kind, status, reason="", message=""):
        conditions = self.pod["status"].setdefault("conditions", [])
        old = next((condition for condition in conditions if condition["type"] == kind), None)
        changed = old["lastTransitionTime"] if old is not None and old["status"] == status else timestamp(self.at)
        new = {"type": kind, "status": status, "lastTransitionTime": changed, "reason": reason, "message": message}
        if old is None:
            conditions.append(new)
        else:
            old.update(new)
        return self

    def create(self, *, gates=()):
        if gates:
            self.pod["spec"]["schedulingGates"] = [{"name": gate} for gate in gates]
            self.condition("PodScheduled", "False", "SchedulingGated", "Scheduling is blocked due to non-empty gates")
        return self.write()

    def ungate(self):
        del self.pod["spec"]["schedulingGates"]
        return self.write()

    def unschedulable(self, message, *, nominated="", event=True):
        self.condition("PodScheduled", "False", "Unschedulable", message)
        if nominated:
            self.pod["status"]["nominatedNodeName"] = nominated
        if event:
            self.event("FailedScheduling", message, component="default-scheduler", lag=0.005)
        return self.write()

    def bind(self, node=NODE, *, event=True):
        self.pod["spec"]["nodeName"] = node
        self.condition("PodScheduled", "True")
        self.write()
        if event:
            message = f"Successfully assigned shop/web to {node}"
            self.event("Scheduled", message, component="default-scheduler")
        return self

    def request_deletion(self, grace=30):
        self.pod["metadata"]["deletionTimestamp"] = timestamp(self.at + grace)
        self.pod["metadata"]["deletionGracePeriodSeconds"] = grace
        return self.write()

    def delete(self):
        self._version += 1
        self.pod["metadata"]["resourceVersion"] = str(self._version)
        pod = msgspec.convert(self.pod, ObservedPod)
        if self.observer is not None:
            self.observer.pod_deleted(pod, ns(self.at + LAG_SECONDS))
        return self

    # --- kubelet ---------------------------------------------------------------------------------------------------

    def accept(self, *, lag=LAG_SECONDS):
        """First status of the kubelet: the pod's workers have started."""
        status = self.pod["status"]
        status["startTime"] = timestamp(self.at)
        if self.kubelet == "v1.36":
            self.condition("PodReadyToStartContainers", "False")
        has_init = bool(self.pod["spec"]["initContainers"])
        self.condition("Initialized", "False" if has_init else "True", "ContainersNotInitialized" if has_init else "")
        for kind in ("Ready", "ContainersReady"):
            self.condition(kind, "False", "ContainersNotReady", "containers with unready status: [app]")
        reason = "PodInitializing" if has_init else "ContainerCreating"
        for field, key in (("initContainers", "initContainerStatuses"), ("containers", "containerStatuses")):
            if self.pod["spec"][field]:
                status[key] = [
                    {
                        "name": container["name"],
                        "ready": False,
                        "started": False,
                        "restartCount": 0,
                        "state": {"waiting": {"reason": reason}},
                        "lastState": {},
                    }
                    for container in self.pod["spec"][field]
                ]
        return self.write(lag=lag)

    def sandbox_ready(self):
        """The condition is part of the kubelet's next status."""
        if self.kubelet == "v1.36":
            self.condition("PodReadyToStartContainers", "True")
        return self

    def initialized(self):
        return self.condition("Initialized", "True")

    def status_of(self, container):
        statuses = self.pod["status"].get("initContainerStatuses", []) + self.pod["status"]["containerStatuses"]
        return next(status for status in statuses if status["name"] == container)

    def is_init(self, container):
        return any(init["name"] == container for init in self.pod["spec"]["initContainers"])

    def pull(self, container, seconds, *, waiting=0.0, size=12_345_678, lag=0.02):
        init = self.is_init(container)
        self.event("Pulling", f'Pulling image "{container}:1"', container=container, init=init, lag=lag)
        self.after(seconds + waiting)
        text = f"{seconds:g}s ({seconds + waiting:g}s including waiting)"
        message = f'Successfully pulled image "{container}:1" in {text}'
        if self.kubelet == "v1.36":
            message += f". Image size: {size} bytes."
        return self.event("Pulled", message, container=container, init=init, lag=lag)

    def image_present(self, container):
        message = f'Container image "{container}:1" already present on machine'
        if self.kubelet == "v1.36":
            message += " and can be accessed by the pod"
        return self.event("Pulled", message, container=container, init=self.is_init(container))

    def start(self, container, *, restarts=0, lag=0.02):
        """Start a container; write() shows it. Without a startup probe, it is `started` at once."""
        init = self.is_init(container)
        is_new = self.kubelet == "v1.36"
        created = "Container created" if is_new else f"Created container {container}"
        started = "Container started" if is_new else f"Started container {container}"
        for reason, message in (("Created", created), ("Started", started)):
            self.event(reason, message, container=container, init=init, count=restarts + 1, lag=lag)
        status = self.status_of(container)
        if "terminated" in status["state"]:
            status["lastState"] = status["state"]
        spec = next(
            spec
            for spec in self.pod["spec"]["initContainers"] + self.pod["spec"]["containers"]
            if spec["name"] == container
        )
        status["state"] = {"running": {"startedAt": timestamp(self.at)}}
        status["restartCount"] = restarts
        status["started"] = "startupProbe" not in spec
        status["ready"] = status["started"] and "readinessProbe" not in spec and not init
        return self

    def exit(self, container, code=0):
        """End a container; write() shows it."""
        status = self.status_of(container)
        started = status["state"]["running"]["startedAt"]
        reason = "Completed" if code == 0 else "Error"
        ended = {"exitCode": code, "reason": reason, "startedAt": started, "finishedAt": timestamp(self.at)}
        status["state"] = {"terminated": ended}
        status["started"], status["ready"] = False, self.is_init(container) and code == 0
        return self

    def crash_back_off(self, container):
        status = self.status_of(container)
        status["lastState"] = status["state"]
        message = f"back-off 10s restarting failed container={container} pod=web"
        status["state"] = {"waiting": {"reason": "CrashLoopBackOff", "message": message}}
        return self.write()

    def wait(self, container, reason, message=""):
        self.status_of(container)["state"] = {"waiting": {"reason": reason, "message": message}}
        return self.write()

    def started(self, container):
        self.status_of(container)["started"] = True
        return self

    def container_ready(self, container):
        self.status_of(container)["ready"] = True
        return self

    def running(self):
        self.pod["status"]["phase"] = "Running"
        return self

    def ready(self, *, lag=LAG_SECONDS):
        """All containers are ready: the pod is."""
        for kind in ("Ready", "ContainersReady"):
            self.condition(kind, "True")
        return self.running().write(lag=lag)

    def fail(self, reason="", message=""):
        self.pod["status"] |= {"phase": "Failed", "reason": reason, "message": message}
        return self.write()

    def disrupt(self, reason, message):
        self.condition("DisruptionTarget", "True", reason, message)
        return self.write()

    def start_normally(self, *, pull_seconds=1.3):
        """Create, bind and start a pod with one container and no probes."""
        self.create().after(0.05).bind().after(0.1).accept().after(0.4).sandbox_ready()
        self.pull("app", pull_seconds).after(0.1).start("app").after(0.2)
        return self.ready()


def node_state(name=NODE, *, ready=True, at=0.0):
    status = "True" if ready else "Unknown"
    condition = {"type": "Ready", "status": status, "lastTransitionTime": timestamp(at), "reason": "NodeStatusUnknown"}
    return msgspec.convert({"metadata": {"name": name}, "status": {"conditions": [condition]}}, ObservedNode)
