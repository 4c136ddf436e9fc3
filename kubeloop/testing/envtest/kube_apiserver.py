"""The executable `kube-apiserver` of `kubeloop envtest`: the development API server with kube-apiserver's flags.

`kube_apiserver_flags.json` says of each flag whether it is obeyed here. With the environment variable
KUBELOOP_ENVTEST=full, controllers, scheduler and simulated nodes run in the same process; KUBELOOP_ENVTEST_NODES sets
the number of nodes (3).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from kubeloop import KUBERNETES_VERSION
from kubeloop.kube.user_error import UserError
from kubeloop.process.python_gc import importing
from kubeloop.testing.envtest.flags import FlagError, flag_table, help_text, parse_flags

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
        print(f"Kubernetes {KUBERNETES_VERSION}")
        return 0
    if positional := flags.positional:
        quoted = " ".join(f'"{argument}"' for argument in positional)
        print(f'Error: "kube-apiserver" does not take any arguments, got [{quoted}]', file=sys.stderr)
        return 1
    try:
        nodes = node_count(os.environ)
        with importing():
            from kubeloop.testing.envtest.server import serve
        return serve(flags, nodes)
    except UserError as error:
        print(f"Error: {error}\n  hint: {error.hint}", file=sys.stderr)
        return 1


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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
