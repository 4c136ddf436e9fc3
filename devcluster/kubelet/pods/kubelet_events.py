"""Events that kubelets record about pods."""

from __future__ import annotations

from kubeloop.devcluster.kubelet.containers.container_run import ContainerRun
from kubeloop.devcluster.kubelet.pods.simulated_pod import SimulatedPod
from kubeloop.devcluster.simulation.simulation import Simulation

_FIELDS = {
    "main": "containers",
    "ephemeral": "ephemeralContainers",
    "init": "initContainers",
    "sidecar": "initContainers",
}


class KubeletEvents:
    """Records events about pods and their containers, unless events are disabled."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation

    def record(self, pod: SimulatedPod, type_: str, reason: str, message: str, run: ContainerRun | None = None) -> None:
        """Record an event about the pod. run: the container that it is about, if any."""
        if self._simulation.records_events:
            host = pod.object["spec"].get("nodeName", "")
            field = f"spec.{_FIELDS[run.role]}{{{run.name}}}" if run is not None else ""
            self._simulation.event(pod.object, type_, reason, message, host=host, field_path=field)

    def pulled(self, pod: SimulatedPod, run: ContainerRun) -> None:
        """Record that a container's image is on the node."""
        if pod.pull_seconds is None:
            message = f'Container image "{run.image}" already present on machine and can be accessed by the pod'
        else:
            took = f"{pod.pull_seconds:.3f}".rstrip("0").rstrip(".") + "s"
            message = f'Successfully pulled image "{run.image}" in {took} ({took} including waiting).'
        self.record(pod, "Normal", "Pulled", message, run)

    def started(self, pod: SimulatedPod, run: ContainerRun) -> None:
        """Record that a container has been created and started."""
        self.pulled(pod, run)
        self.record(pod, "Normal", "Created", "Container created", run)
        self.record(pod, "Normal", "Started", "Container started", run)
