"""The command line: commands and their options. The module of each command is imported when it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from kubeloop import KUBERNETES_VERSION, __version__
from kubeloop.cli.help_screens import HelpGroup
from kubeloop.cli.options.operator_fault_options import OperatorFaultOptions
from kubeloop.cli.options.options import (
    FILE,
    OUTPUT,
    ClusterGateOptions,
    CommandOptions,
    ControllerOptions,
    DevClusterOptions,
    DisplayOptions,
    ElectionOptions,
    ExplainGateOptions,
    ExplainOptions,
    FeatureGateOptions,
    KubeconfigOptions,
    ManifestsOptions,
    NewNodes,
    ObserveElectionOptions,
    ObserveOptions,
    ProcessOptions,
    RunOptions,
    ServeOptions,
    ServerGateOptions,
    ServerOptions,
    TopOptions,
    TraceOptions,
    UpOptions,
    completer,
    with_options,
)
from kubeloop.cli.options.recording_options import ChangeOptions, PlanOptions, RecordOptions
from kubeloop.cli.options.replay_options import ReplayOptions
from kubeloop.cli.targets import join_target
from kubeloop.process.python_gc import importing

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
_VERSION = f"kubeloop {__version__} (follows Kubernetes {KUBERNETES_VERSION})"

# headings in the list of commands
_CLUSTER, _EXISTING = "Development cluster", "Any cluster"
_RECORDINGS, _READ = "Plans and recordings", "Pods of a cluster"


@click.group(cls=HelpGroup, context_settings=_CONTEXT)
@click.version_option(_VERSION, message="%(version)s")
def commands() -> None:
    """Run Kubernetes controllers and scheduler in one process, with a development cluster and a trace per pod."""


@commands.command(section=_CLUSTER)
@with_options(UpOptions, DevClusterOptions, ProcessOptions, ControllerOptions, DisplayOptions, ClusterGateOptions)
def up(
    files: UpOptions,
    cluster: DevClusterOptions,
    process: ProcessOptions,
    controllers: ControllerOptions,
    display: DisplayOptions,
    gates: ClusterGateOptions,
) -> int:
    """Start a development cluster with all controllers.

    Applies manifests and shows the progress of their pods. Runs until Ctrl-C, unless --once is set.
    """
    with importing():
        from kubeloop.cli.up import up as start

    return start(files.files, cluster, process, controllers, display, gates)


@commands.command(section=_CLUSTER)
@with_options(DevClusterOptions, ServeOptions, ServerGateOptions)
def apiserver(cluster: DevClusterOptions, server: ServeOptions, gates: ServerGateOptions) -> int:
    """Start an API server with simulated nodes only."""
    with importing():
        from kubeloop.cli.apiserver import serve

    return serve(cluster, server, gates)


@commands.command(section=_EXISTING)
@with_options(ServerOptions, ProcessOptions, ControllerOptions, RunOptions, ElectionOptions, FeatureGateOptions)
def run(
    server: ServerOptions,
    process: ProcessOptions,
    controllers: ControllerOptions,
    run_options: RunOptions,
    election: ElectionOptions,
    gates: FeatureGateOptions,
) -> int:
    """Run controllers and scheduler on an API server.

    Options take precedence over clientConnection and leaderElection in the file of --config.
    """
    with importing():
        from kubeloop.cli.options.scheduler_options import options_from_configuration
        from kubeloop.cli.run import run as start

    context = click.get_current_context()
    configured = {
        name: value
        for name, value in options_from_configuration(
            process.config, algorithm_provider=process.algorithm_provider, gates=gates.parsed()
        ).items()
        if context.get_parameter_source(name) is ParameterSource.DEFAULT
    }
    return start(
        _replaced(server, configured),
        process,
        controllers,
        _replaced(run_options, configured),
        _replaced(election, configured),
        gates,
    )


T = TypeVar("T", bound=CommandOptions)


def _replaced(options: T, values: Mapping[str, Any]) -> T:
    """Return the options with those of `values` that are fields of their class."""
    return options.replace(**{name: value for name, value in values.items() if name in options.declared()})


@commands.command(section=_EXISTING)
@with_options(ObserveOptions, ObserveElectionOptions)
def observe(options: ObserveOptions, election: ObserveElectionOptions) -> int:
    """Trace the pods of an existing cluster, read-only.

    Watches pods, events, nodes and owners, with any control plane and any kubelet. Writes nothing to the cluster.
    """
    with importing():
        from kubeloop.cli.observe import observe as start

    return start(options, election)


@commands.command(section=_RECORDINGS)
@with_options(RecordOptions)
@click.argument("file", type=OUTPUT)
def record(options: RecordOptions, file: Path) -> int:
    """Record the objects of a cluster that decide about its pods to FILE, read-only.

    Runs until Ctrl-C, unless --once is set; the file may be read at any moment. Secrets, ConfigMaps, environment
    variables and commands are not recorded. docs/recording.md describes the file.
    """
    from kubeloop.cli.recording.record import record as start

    return start(file, options)


@commands.command(section=_RECORDINGS)
@with_options(ReplayOptions, ChangeOptions)
@click.argument("recording", type=click.Path(path_type=Path), nargs=-1, required=True, metavar="FILE...")
def replay(options: ReplayOptions, changes: ChangeOptions, recording: tuple[Path, ...]) -> int:
    """Run the recorded cluster of FILE again in virtual time, and report on its pods and nodes.

    Users and nodes act as in the recording (kubeloop record); controllers and scheduler do the rest. Pods start, run
    and fail as those of their workload did. Changes are made at the start, as those of a plan. Nothing is sent to a
    cluster.
    """
    with importing():
        from kubeloop.cli.replay.replay import replay as start

    return start(recording, options, changes)


@commands.command(section=_RECORDINGS)
@with_options(PlanOptions)
def plan(options: PlanOptions) -> int:
    """Show what happens if manifests are applied, nodes drained, deleted or added, or workloads scaled.

    Copies the cluster into memory, read-only, makes the changes there, and runs controllers and scheduler in virtual
    time until nothing changes. Exit code 0: everything fits; 1: not everything; 2: invalid input.
    """
    with importing():
        from kubeloop.cli.recording.plan import plan as start

    return start(options)


@commands.command(section=_READ)
@with_options(TraceOptions)
@click.argument("target", nargs=-1, metavar="[pod NAME | pod/NAME | KIND/NAME]", shell_complete=completer("targets"))
def trace(options: TraceOptions, target: tuple[str, ...]) -> int:
    """Show how long each phase of pod creation took.

    Of a pod, of the pods of an owner (deploy/NAME, sts/NAME, ds/NAME, job/NAME, cronjob/NAME, KIND.GROUP/NAME), of a
    pod group (podgroup/NAME), or of all pods.
    """
    from kubeloop.cli.trace.trace import show

    return show(join_target(target, verb="trace"), options)


@commands.command(section=_READ)
@with_options(TopOptions)
@click.argument("view", type=click.Choice(["pods", "workloads", "nodes"]), default="pods", metavar="[VIEW]")
def top(options: TopOptions, view: str) -> int:
    """Show pods, workloads or nodes live, with stage, age, time in the stage, and reason.

    Enter opens the waterfall of a pod, e explains it, ? lists all keys. Needs the optional dependency textual: pip
    install 'kubeloop[top]'.
    """
    from kubeloop.cli.top.source import TopSource, require_terminal

    require_terminal()
    from kubeloop.cli.top.app import run

    return run(TopSource(options.endpoint, options.namespace), view)


@commands.command(section=_READ)
@with_options(ExplainOptions, ExplainGateOptions)
@click.argument(
    "target", nargs=-1, required=True, metavar="pod NAME | pod/NAME | KIND/NAME", shell_complete=completer("targets")
)
def explain(options: ExplainOptions, gates: ExplainGateOptions, target: tuple[str, ...]) -> int:
    """Explain why a pod or a pod group (podgroup/NAME) is pending.

    Of an owner (deploy/NAME, sts/NAME, ds/NAME, job/NAME, cronjob/NAME), the first pending pod is explained.

    Lists the reasons by plugin with their nodes, what would help, and whether preemption would. A running kubeloop
    scheduler answers for its pods; in a cluster with another scheduler, this command reads the cluster once.
    """
    from kubeloop.cli.explain.explain import show

    return show(join_target(target, verb="explain") or "", options, gates)


@commands.group(cls=HelpGroup, section=_CLUSTER)
def nodes() -> None:
    """Add, remove and fail simulated nodes.

    The cluster is that of --kubeconfig, of $KUBECONFIG, or of the newest `kubeloop up` on this machine.
    """


_NODE_NAMES = click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=completer("nodes"))
_NODE_SELECTOR = click.option("-l", "--selector", default="", help="Label selector of the nodes.")
_FAILURE_MODE = click.option(
    "--mode",
    type=click.Choice(
        ["unreachable", "not-ready", "memory-pressure", "disk-pressure", "pid-pressure", "network-unavailable"]
    ),
    default="unreachable",
    show_default=True,
    help="Failure mode. unreachable: no contact with the node; not-ready: the kubelet cannot start pods.",
)


def _node_options(command: Any) -> Any:
    """Add the options that all `nodes` commands share."""
    kubeconfig = click.option("--kubeconfig", type=FILE, help="Kubeconfig file of the cluster.")
    return kubeconfig(click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")(command))


def _node_change(action: str, **arguments: Any) -> Callable[..., int]:
    """Return the command that passes the nodes of NAME, --selector and --all to the function `action` of cli.nodes."""

    def change(names: tuple[str, ...], selector: str, all_nodes: bool, **options: Any) -> int:
        from kubeloop.cli import nodes as module

        selection = module.NodeSelection(names, selector, all_nodes)
        exit_code: int = getattr(module, action)(selection, **arguments, **options)
        return exit_code

    all_nodes = click.option("--all", "all_nodes", is_flag=True, help="Select all nodes.")
    command: Callable[..., int] = _NODE_NAMES(_NODE_SELECTOR(all_nodes(_node_options(change))))
    return command


@nodes.command("list")
@_NODE_NAMES
@_NODE_SELECTOR
@_node_options
def nodes_list(names: tuple[str, ...], selector: str, **options: Any) -> int:
    """List nodes with status, failure mode and pods."""
    from kubeloop.cli.nodes import NodeSelection, show

    return show(NodeSelection(names, selector, False), **options)


@nodes.command("add")
@with_options(NewNodes)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@_node_options
def nodes_add(new: NewNodes, names: tuple[str, ...], **options: Any) -> int:
    """Create simulated nodes and wait until they are ready.

    In a cluster that is not kubeloop's, which --kubeconfig must name, this command simulates them until Ctrl-C, and
    then deletes them and their pods.
    """
    from kubeloop.cli.nodes import add

    return add(names, new, **options)


for _name, _change, _help in (
    (
        "remove",
        _node_change("remove"),
        "Delete nodes.\n\nTheir pods are deleted 40 s later; controllers replace them.",
    ),
    ("cordon", _node_change("cordon", unschedulable=True), "Mark nodes as unschedulable."),
    ("uncordon", _node_change("cordon", unschedulable=False), "Mark nodes as schedulable."),
    ("fail", _FAILURE_MODE(_node_change("fail")), "Simulate failures of nodes."),
    ("recover", _node_change("fail", mode=""), "End simulated failures of nodes."),
):
    nodes.command(_name, help=_help)(_change)


@commands.command(section=_CLUSTER)
def envtest() -> int:
    """Print a folder with kube-apiserver, etcd and kubectl for controller-runtime's envtest.

    export KUBEBUILDER_ASSETS=$(kubeloop envtest) lets envtest start kubeloop. With KUBELOOP_ENVTEST=full, controllers,
    scheduler and KUBELOOP_ENVTEST_NODES (3) simulated nodes run, too.
    """
    from kubeloop.cli.envtest import print_folder

    return print_folder()


@commands.command(section=_CLUSTER)
@with_options(OperatorFaultOptions)
def test_operator(options: OperatorFaultOptions) -> int:
    """Run an operator of any language under faults, as an external process, and report what it does wrong.

    Runs without faults show its writes. Then each write meets each fault: crashes, late and missed events, old lists,
    409, 429, 500, a lost response, another leader. docs/operator-faults.md describes the report.

    Exit code 0: it passed; 1: it failed; 2: invalid input, or the operator fails without faults.
    """
    with importing():
        from kubeloop.cli.operator_faults import check_faults

    return check_faults(options)


@commands.command(section=_CLUSTER)
@with_options(KubeconfigOptions)
def kubeconfig(options: KubeconfigOptions) -> int:
    """Print a kubeconfig of a user and groups, with a client certificate of the cluster.

    The user of the present kubeconfig must be allowed to create and approve certificate requests.
    """
    from kubeloop.cli.kubeconfig import kubeconfig as write

    return write(options)


@commands.command(section=_EXISTING)
@with_options(ManifestsOptions)
def manifests(options: ManifestsOptions) -> int:
    """Print a Deployment of controllers, with the RBAC rules they need.

    The rules follow from what the controllers declare: what they watch, own and name as permissions.
    """
    with importing():
        from kubeloop.cli.manifests import print_manifests

    return print_manifests(options)


@commands.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.option("--line", default=None, hidden=True)
def completion(shell: str, line: str | None) -> None:
    """Print a script that completes commands, options and names in a shell.

    Names of pods, owners, nodes, namespaces and contexts come from the running process, the cluster or the kubeconfig.
    Credential plugins of a kubeconfig are not run for them.

    \b
    bash, in ~/.bashrc:                     source <(kubeloop completion bash)
    zsh, in ~/.zshrc after compinit:        source <(kubeloop completion zsh)
    fish, in ~/.config/fish/config.fish:    kubeloop completion fish | source
    """
    from kubeloop.cli.completion.shells import SCRIPTS, candidates

    if line is None:
        click.echo(SCRIPTS[shell], nl=False)
        return
    for candidate in candidates(click.get_current_context().find_root().command, shell, line):
        click.echo(candidate)


@commands.command()
def version() -> None:
    """Print the versions of kubeloop and Kubernetes."""
    click.echo(_VERSION)
