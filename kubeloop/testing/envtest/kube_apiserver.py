"""The executable `kube-apiserver` of `kubeloop envtest`: the development API server with kube-apiserver's flags.

`kube_apiserver_flags.json` says of each flag whether it is obeyed here. With the environment variable
KUBELOOP_ENVTEST=full, controllers, scheduler and simulated nodes run in the same process; KUBELOOP_ENVTEST_NODES sets
the number of nodes (3).
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import sys
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from kubeloop.kube.user_error import UserError
from kubeloop.testing.envtest.flags import FlagError, Flags, flag_table, help_text, parse_flags

if TYPE_CHECKING:
    from kubeloop.devcluster.server.apiserver import ApiServer
    from kubeloop.kube.clock import Clock
    from kubeloop.testing.cluster_options import ClusterOptions

_MODE, _NODES = "KUBELOOP_ENVTEST", "KUBELOOP_ENVTEST_NODES"
_DEFAULT_NODES = 3


def main(arguments: list[str]) -> int:
    """Run until SIGTERM or SIGINT; return the exit code. Messages go to stderr, as of kube-apiserver."""
    table = flag_table("kube-apiserver")
    try:
        flags = parse_flags(table, arguments)
    except FlagError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    if flags.boolean("help"):
        print("kube-apiserver of kubeloop envtest: serves the Kubernetes API from memory.\n\nFlags:\n")
        print(help_text(table), end="")
        return 0
    if flags.is_set("version"):
        from kubeloop import KUBERNETES_VERSION

        print(f"Kubernetes {KUBERNETES_VERSION}")
        return 0
    if positional := flags.positional:
        quoted = " ".join(f'"{argument}"' for argument in positional)
        print(f'Error: "kube-apiserver" does not take any arguments, got [{quoted}]', file=sys.stderr)
        return 1
    try:
        return _serve(flags, os.environ)
    except UserError as error:
        print(f"Error: {error}\n  hint: {error.hint}", file=sys.stderr)
        return 1


def _serve(flags: Flags, environment: Mapping[str, str]) -> int:
    from kubeloop.process.python_gc import importing

    with importing():
        from kubeloop.process.logs import configure_logging
        from kubeloop.process.signals import run_until_interrupted
    configure_logging("warning")
    return run_until_interrupted(_run(flags, node_count(environment)), interrupted=0)


def node_count(environment: Mapping[str, str]) -> int | None:
    """Return the number of simulated nodes, None for an API server alone. Raises UserError."""
    mode, nodes = environment.get(_MODE, ""), environment.get(_NODES, "")
    if mode not in ("", "full"):
        raise UserError(f"{_MODE}={mode} is no mode", hint=f"{_MODE}=full adds controllers, scheduler and nodes")
    if not mode:
        return None
    if nodes and not nodes.isdecimal():
        raise UserError(f"{_NODES}={nodes} is no number", hint="set the number of simulated nodes, such as 10")
    return int(nodes or _DEFAULT_NODES)


async def _run(flags: Flags, nodes: int | None) -> int:
    """Serve until cancelled. nodes: None for an API server alone. Raises UserError."""
    from kubeloop.devcluster.server.apiserver import ApiServer
    from kubeloop.devcluster.server.http import HttpServer
    from kubeloop.devcluster.server.listener import listen
    from kubeloop.kube.clock import SystemClock
    from kubeloop.process.development_cluster.cluster_assembly import running_cluster
    from kubeloop.testing.cluster_options import ClusterOptions
    from kubeloop.testing.envtest.serving_options import ServingOptions

    clock, rng, token = SystemClock(), random.Random(), secrets.token_urlsafe(32)
    options = ServingOptions(flags, clock)
    with closing(options.listener()) as listener:
        settings = options.settings(listener.getsockname()[1], runs_controllers=nodes is not None)
        api = ApiServer(clock=clock, rng=rng, token=token, settings=settings)
        tls = options.tls_context()
        cluster = ClusterOptions(nodes=nodes or 0, feature_gates=settings.feature_gates.text())
        node_settings = replace(cluster.node_settings(), every_node=nodes is not None)
        async with (
            HttpServer(api, headers=options.headers(), compress=api.compresses_responses) as http,
            running_cluster(api, node_settings, (), token=token, clock=clock, rng=rng),
            asyncio.TaskGroup() as group,
        ):
            group.create_task(listen(listener, http, tls, accepts_plain_http=False), name="listener")
            if nodes is not None:
                group.create_task(_run_controllers(api, cluster, token, clock, rng), name="controllers")
    return 0


async def _run_controllers(
    api: ApiServer, cluster: ClusterOptions, token: str, clock: Clock, rng: random.Random
) -> None:
    """Run controllers and scheduler until cancelled; they are imported while the API server serves."""
    from kubeloop.testing.assembly import run_control_plane

    async with run_control_plane(api, cluster.settings(), clock=clock, rng=rng, token=token):
        await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
