"""`kubeloop up`: start a development cluster with all controllers, apply manifests, and show the progress of pods.

Imports little: the cluster's process, which takes longest to start, starts before the modules of this one are imported.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kubeloop.cli.options.options import (
    ControllerOptions,
    DevClusterOptions,
    DisplayOptions,
    FeatureGateOptions,
    ProcessOptions,
    arguments_of,
)
from kubeloop.devcluster.storage.private_files import read_or_create_token
from kubeloop.process.development_cluster.apiserver_command import api_server_process
from kubeloop.process.python_gc import importing


def up(
    files: Sequence[Path],
    cluster: DevClusterOptions,
    process: ProcessOptions,
    controllers: ControllerOptions,
    display: DisplayOptions,
    gate_options: FeatureGateOptions,
) -> int:
    """Run the command and return its exit code. Raises UserError for invalid input."""
    token = read_or_create_token(cluster.data_dir)
    arguments = [
        *arguments_of(cluster),
        *arguments_of(gate_options),
        f"--node-monitor-grace-period={vars(controllers)['node_monitor_grace_period']}",
    ]
    with api_server_process(arguments, token=token) as api_server:
        with importing():
            from kubeloop.cli.up_session import run

        return run(api_server, token, files, cluster, process, controllers, display, gate_options)
