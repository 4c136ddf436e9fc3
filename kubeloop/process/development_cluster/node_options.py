"""Capacity, zones and devices of simulated nodes, from options of commands and test clusters."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kubeloop.devcluster.kubelet.containers.container_answers import ContainerAnswers
from kubeloop.kube.user_error import UserError
from kubeloop.kube.values.quantities import QuantityError, parse_quantity

if TYPE_CHECKING:
    from kubeloop.devcluster.kubelet.stages.files import Stage
    from kubeloop.devcluster.simulation.device_files import DevicePool


def positive_quantity(text: str, option: str) -> str:
    """Return `text` if it is a positive quantity. Raises UserError, which names the option."""
    try:
        if parse_quantity(text).value() > 0:
            return text
        problem = "must be more than 0"
    except QuantityError as error:
        problem = str(error)
    raise UserError(f"{option} {text}: {problem}", hint="a quantity such as 8, 500m or 32Gi")


def node_capacity(cpu: str, memory: str, pods: int, *, option: str) -> dict[str, str]:
    """Return the capacity of a node. option: form of the options' names, "--node-{}". Raises UserError."""
    return {
        "cpu": positive_quantity(cpu, option.format("cpu")),
        "memory": positive_quantity(memory, option.format("memory")),
        "pods": str(pods),
        "ephemeral-storage": "100Gi",
    }


def read_device_pools(path: str | Path | None) -> tuple[DevicePool, ...]:
    """Return the pools of a device file; none without a file. Raises UserError."""
    if not path:
        return ()
    from kubeloop.devcluster.simulation.device_files import read_devices

    return read_devices(Path(path))


def read_stage_files(paths: Sequence[str | Path]) -> tuple[list[Stage], ContainerAnswers]:
    """Return the KWOK stages and the answers of simulated containers in these files. Raises UserError."""
    if not paths:
        return [], ContainerAnswers()
    from kubeloop.devcluster.kubelet.stages.answer_files import read_container_answers
    from kubeloop.devcluster.kubelet.stages.files import read_stages

    files = [Path(path) for path in paths]
    return read_stages(files), read_container_answers(files)


def zone_names(count: int) -> tuple[str, ...]:
    """Return "zone-a", "zone-b", ...; numbers if there are more than letters."""
    return tuple(f"zone-{chr(ord('a') + number) if count <= 26 else number}" for number in range(count))
