"""`kubeloop nodes`: add, remove and fail simulated nodes of a development cluster, or of any cluster.

All changes go through the API: a simulated node is a Node object, and its annotation `kubeloop.dev/fail` sets its
failure mode. kubectl can make the same changes. In a cluster with another API server, which --kubeconfig must name,
`add` simulates its nodes until it is stopped, and the other commands change simulated nodes only.
"""

from __future__ import annotations

import asyncio
import functools
import json
import random
import re
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from kubeloop.cli.options.options import NewNodes
from kubeloop.cli.terminal import output_columns
from kubeloop.devcluster.simulation.node_objects import (
    ANNOTATION_FAIL,
    ANNOTATION_NODE,
    NodeSettings,
    is_simulated,
)
from kubeloop.kube.auth.credentials import connect
from kubeloop.kube.client.api_client import ApiClient, PatchType
from kubeloop.kube.clock import SystemClock
from kubeloop.kube.errors import ApiError, ServerUnreachable
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import NODES
from kubeloop.kube.uids import new_uid
from kubeloop.kube.user_error import UserError, closest_names
from kubeloop.process.api_server_check import unreachable_error
from kubeloop.process.development_cluster.node_options import node_capacity, read_stage_files
from kubeloop.process.process_files import development_kubeconfig
from kubeloop.process.signals import run_until_interrupted
from kubeloop.tracing.views.columns import fitting_columns, text_width

if TYPE_CHECKING:
    from kubeloop.devcluster.kubelet.stages.files import Stage

_ZONE, _REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
_LIST_HINT = "list the nodes with kubeloop nodes list"
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_READY_SECONDS, _POLL_SECONDS = 5.0, 0.05
_OPTIONAL_COLUMNS = (7, 3, 5, 4, 2)  # taints, zone, memory, cpu, fails: left out in this order on a narrow terminal


@dataclass(frozen=True, slots=True)
class NodeSelection:
    """Selection of nodes: by name, by label selector, or all simulated nodes."""

    names: Sequence[str]
    selector: str
    all_nodes: bool


# --- commands -------------------------------------------------------------------------------------


def _with_client(command: Callable[..., Awaitable[int]]) -> Callable[..., int]:
    """Return the command as a function with the keyword `kubeconfig`: the cluster to connect to."""

    @functools.wraps(command)
    def run(*arguments: Any, kubeconfig: Path | None, **options: Any) -> int:
        return _run_with_client(lambda client: command(client, *arguments, **options), kubeconfig)

    return run


def add(named: Sequence[str], new: NewNodes, *, kubeconfig: Path | None, as_json: bool) -> int:
    """Create Nodes and wait until they are ready; in a cluster that is not kubeloop's, simulate them until Ctrl-C.

    Raises UserError for invalid input.
    """
    template = _template(new)
    if kubeconfig is not None and not _run_with_client(_development_code, kubeconfig):
        stages, _ = read_stage_files(new.stages)
        simulate = functools.partial(_simulate, named=named, new=new, template=template, stages=stages, as_json=as_json)
        return _run_with_client(simulate, kubeconfig, interrupted=0)
    if new.stages:
        raise UserError(
            "--stages is for clusters of other API servers", hint="kubeloop up --stages sets it for its nodes"
        )
    return _add(named, new, template, kubeconfig=kubeconfig, as_json=as_json)


async def _development_code(client: ApiClient) -> int:
    return int(await _is_development(client))


async def _simulate(
    client: ApiClient,
    *,
    named: Sequence[str],
    new: NewNodes,
    template: JSON,
    stages: Sequence[Stage],
    as_json: bool,
) -> int:
    """Create Nodes and simulate them until cancelled, then delete them and their pods."""
    from kubeloop.process.development_cluster.remote_nodes import OWNER_LABEL, RemoteNodes, remove_nodes

    clock, rng = SystemClock(), random.Random()
    owner = new_uid(rng)[:8]
    present = {node["metadata"]["name"]: node for node in await _nodes(client)}
    names = _new_names(named, new, present)
    remote = RemoteNodes(client, owner, names, NodeSettings(), clock=clock, rng=rng, stages=stages)
    template = {**template, "metadata": {**template["metadata"]}}
    template["metadata"]["labels"] = template["metadata"]["labels"] | {OWNER_LABEL: owner}
    if not new.taints and any(not is_simulated(node) for node in present.values()):
        hint = f"--taint {ANNOTATION_NODE}=simulated:NoSchedule reserves them for pods that tolerate it"
        print(f"warning: the scheduler may bind pods of this cluster to the simulated nodes; {hint}", file=sys.stderr)
    try:
        for name in names:
            await client.create_raw(NODES, _with_name(template, name, ("local", new.zone) if new.zone else ("", "")))
            if not as_json:
                print(f"node/{name} created", flush=True)
        async with asyncio.TaskGroup() as group:
            group.create_task(remote.run(), name="remote-nodes")
            await _wait_until_ready(client, names)
            await _show(client, names, as_json=as_json, title=False)
            print("simulated until Ctrl-C, which deletes them and their pods", file=sys.stderr, flush=True)
    finally:
        await remove_nodes(client, names, owner, remote.pods)
    return 0


@_with_client
async def _add(client: ApiClient, named: Sequence[str], new: NewNodes, template: JSON, *, as_json: bool) -> int:
    present = {node["metadata"]["name"]: node for node in await _nodes(client)}
    names = _new_names(named, new, present)
    zones = Counter(
        (labels.get(_REGION, ""), labels[_ZONE])
        for labels in (node["metadata"].get("labels") or {} for node in present.values())
        if _ZONE in labels
    )
    for name in names:
        place = _choose_zone(new.zone, zones)
        zones[place] += 1
        await client.create_raw(NODES, _with_name(template, name, place))
    if not as_json:
        print("\n".join(f"node/{name} created" for name in names))
    await _wait_until_ready(client, names)
    return await _show(client, names, as_json=as_json, title=False)


@_with_client
async def remove(client: ApiClient, selection: NodeSelection, *, as_json: bool) -> int:
    """Delete Nodes; the pod garbage collector deletes their pods after 40 s."""
    nodes = await _selected_nodes(client, selection)
    for node in nodes:
        metadata = node["metadata"]
        await client.delete(NODES, metadata["name"], precondition_uid=metadata["uid"])
    return _print_outcome(nodes, "deleted", as_json=as_json)


@_with_client
async def cordon(client: ApiClient, selection: NodeSelection, *, unschedulable: bool, as_json: bool) -> int:
    """Mark the nodes as unschedulable, or as schedulable."""
    nodes = await _selected_nodes(client, selection)
    for node in nodes:
        await _patch(client, node, {"spec": {"unschedulable": unschedulable or None}})
    return _print_outcome(nodes, "cordoned" if unschedulable else "uncordoned", as_json=as_json)


@_with_client
async def fail(client: ApiClient, selection: NodeSelection, mode: str, *, as_json: bool) -> int:
    """Set the failure mode of the nodes (node_objects.FAILURE_MODES); "" ends the failure."""
    nodes = await _selected_nodes(client, selection)
    if not mode and selection.all_nodes:
        nodes = [node for node in nodes if ANNOTATION_FAIL in (node["metadata"].get("annotations") or {})]
    for node in nodes:
        if not is_simulated(node):
            name = node["metadata"]["name"]
            raise UserError(
                f"node {name!r} is not simulated by kubeloop",
                hint=f"annotate it {ANNOTATION_NODE}=simulated to have it simulated",
            )
    for node in nodes:
        await _patch(client, node, {"metadata": {"annotations": {ANNOTATION_FAIL: mode or None}}})
    return _print_outcome(nodes, f"fails: {mode}" if mode else "recovers", as_json=as_json)


@_with_client
async def show(client: ApiClient, selection: NodeSelection, *, as_json: bool) -> int:
    """Print a table of nodes."""
    if not selection.names and not selection.selector:
        return await _show(client, None, as_json=as_json)
    nodes = await _selected_nodes(client, selection)
    return await _show(client, [node["metadata"]["name"] for node in nodes], as_json=as_json)


# --- the cluster ----------------------------------------------------------------------------------


def _run_with_client(
    command: Callable[[ApiClient], Awaitable[int]], kubeconfig: Path | None, *, interrupted: int = 130
) -> int:
    path = development_kubeconfig(kubeconfig)

    async def main() -> int:
        transport = await connect(path)
        client = ApiClient(transport, clock=SystemClock(), rng=random.Random())
        try:
            if kubeconfig is None and not await _is_development(client):
                raise UserError(
                    f"{transport.server} is not a development cluster of kubeloop",
                    hint="kubeloop up starts one; a cluster of another kind must be named by --kubeconfig",
                )
            return await command(client)
        except ApiError as error:
            raise UserError(error.status.message or str(error), hint=_LIST_HINT) from None
        except ServerUnreachable as error:
            raise unreachable_error(transport.server, error) from None
        finally:
            await client.close()

    return run_until_interrupted(main(), interrupted=interrupted)


async def _is_development(client: ApiClient) -> bool:
    """Return True for a development cluster, whose server simulates its nodes."""
    response = await client.raw("GET", "/version")
    return bool(msgspec.json.decode(response.body).get("gitVersion", "").endswith("+kubeloop"))


async def _nodes(client: ApiClient, selector: str = "") -> list[JSON]:
    query = f"?labelSelector={quote(selector)}" if selector else ""
    response = await client.raw("GET", f"/api/v1/nodes{query}")
    nodes: list[JSON] = msgspec.json.decode(response.body)["items"]
    return nodes


async def _selected_nodes(client: ApiClient, selection: NodeSelection) -> list[JSON]:
    """Return the selected nodes, of a cluster that is not kubeloop's the simulated ones. Raises UserError if one does
    not exist."""
    if sum((bool(selection.names), bool(selection.selector), selection.all_nodes)) != 1:
        raise UserError("no nodes selected", hint="select nodes by name, with --selector, or with --all")
    nodes, kind = await _nodes(client, selection.selector), "node"
    if not await _is_development(client):
        nodes, kind = [node for node in nodes if is_simulated(node)], "simulated node"
    if selection.selector:
        if not nodes:
            raise UserError(f"no {kind} matches {selection.selector!r}", hint=_LIST_HINT)
        return nodes
    if selection.all_nodes:
        return nodes
    present = {node["metadata"]["name"]: node for node in nodes}
    for name in selection.names:
        if name not in present:
            similar = closest_names(name, present, count=3, cutoff=0.5)
            hint = f"did you mean {' or '.join(similar)}?" if similar else _LIST_HINT
            raise UserError(f"no {kind} {name!r}", hint=hint)
    return [present[name] for name in dict.fromkeys(selection.names)]


async def _patch(client: ApiClient, node: JSON, body: JSON) -> None:
    await client.patch(NODES, node["metadata"]["name"], body, PatchType.MERGE)


async def _wait_until_ready(client: ApiClient, names: Sequence[str]) -> None:
    """Wait until the kubelets have registered; custom stages may take longer than this waits."""
    try:
        async with asyncio.timeout(_READY_SECONDS):
            while True:
                nodes = {node["metadata"]["name"]: node for node in await _nodes(client)}
                if all(name in nodes and _ready(nodes[name]) == "True" for name in names):
                    return
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        print("warning: some nodes are not ready yet", file=sys.stderr)


# --- new nodes ------------------------------------------------------------------------------------


def _template(new: NewNodes) -> JSON:
    """Return the Node without a name. Raises UserError for invalid options."""
    capacity = node_capacity(new.cpu, new.memory, new.pods, option="--{}")
    labels = {
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
    }
    for pair in (pair for text in new.labels for pair in text.split(",")):
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise UserError(f"--labels {pair}: a label is KEY=VALUE", hint="for example: --labels zone=a,disk=ssd")
        labels[key] = value
    spec: JSON = {"taints": [_taint(text) for text in new.taints]} if new.taints else {}
    return {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {"labels": labels, "annotations": {ANNOTATION_NODE: "simulated"}},
        "spec": spec,
        "status": {"capacity": capacity, "allocatable": capacity},
    }


def _taint(text: str) -> JSON:
    match = re.fullmatch(r"([^=:]+)(?:=([^:]*))?:(\w+)", text)
    if match is None or match[3] not in _EFFECTS:
        raise UserError(
            f"--taint {text}: a taint is KEY[=VALUE]:EFFECT", hint=f"the effect is one of {', '.join(_EFFECTS)}"
        )
    return {"key": match[1], **({"value": match[2]} if match[2] else {}), "effect": match[3]}


def _new_names(named: Sequence[str], new: NewNodes, present: Iterable[str]) -> list[str]:
    """Return the names of the new nodes: as given, or the next free numbers. Raises UserError for an existing name."""
    existing = set(present)
    if named:
        number = next((name for name in named if name.isdecimal()), None)
        if number is not None:  # valid for Kubernetes, but surely meant as a count
            raise UserError(f"{number!r} looks like a number of nodes", hint=f"use kubeloop nodes add --count {number}")
        duplicates = [name for name in named if name in existing]
        if duplicates:
            raise UserError(f"node {duplicates[0]!r} already exists", hint=_LIST_HINT)
        return list(dict.fromkeys(named))
    numbers = [
        int(name.removeprefix(new.name_prefix))
        for name in existing
        if re.fullmatch(re.escape(new.name_prefix) + r"\d+", name)
    ]
    first = max(numbers, default=-1) + 1
    return [f"{new.name_prefix}{first + offset}" for offset in range(new.count)]


def _choose_zone(zone: str, zones: Mapping[tuple[str, str], int]) -> tuple[str, str]:
    """Return region and zone of the next node: the given zone, or the one with the fewest nodes."""
    if zone:
        return next((place for place in zones if place[1] == zone), ("local", zone))
    return min(sorted(zones), key=lambda place: zones[place], default=("", ""))


def _with_name(template: JSON, name: str, place: tuple[str, str]) -> JSON:
    region, zone = place
    labels = {
        **({_REGION: region} if region else {}),
        **({_ZONE: zone} if zone else {}),
        **template["metadata"]["labels"],
        "kubernetes.io/hostname": name,
    }
    return {**template, "metadata": {**template["metadata"], "name": name, "labels": labels}}


# --- output ---------------------------------------------------------------------------------------


def _print_outcome(nodes: Sequence[JSON], outcome: str, *, as_json: bool) -> int:
    if as_json:
        names = [node["metadata"]["name"] for node in nodes]
        print(json.dumps({"nodes": [{"name": name, "outcome": outcome} for name in names]}))
    else:
        for node in nodes:
            print(f"node/{node['metadata']['name']} {outcome}")
    return 0


async def _show(client: ApiClient, names: Sequence[str] | None, *, as_json: bool, title: bool = True) -> int:
    nodes = [node for node in await _nodes(client) if names is None or node["metadata"]["name"] in names]
    pods = await client.raw("GET", "/api/v1/pods?fieldSelector=status.phase!=Succeeded,status.phase!=Failed")
    bound = Counter(pod["spec"].get("nodeName", "") for pod in msgspec.json.decode(pods.body)["items"])
    rows = [_row(node, bound[node["metadata"]["name"]]) for node in nodes]
    if as_json:
        print(json.dumps({"nodes": rows}))
    elif title:
        _print_table(rows)
    return 0


def _ready(node: JSON) -> str:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return str(next((condition["status"] for condition in conditions if condition["type"] == "Ready"), "Unknown"))


def _row(node: JSON, pods: int) -> JSON:
    metadata, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
    status_text = {"True": "Ready", "False": "NotReady"}.get(_ready(node), "NotReady (unreachable)")
    allocatable = status.get("allocatable") or {}
    return {
        "name": metadata["name"],
        "status": status_text + (",SchedulingDisabled" if spec.get("unschedulable") else ""),
        "fails": (metadata.get("annotations") or {}).get(ANNOTATION_FAIL, ""),
        "simulated": bool(is_simulated(node)),
        "zone": (metadata.get("labels") or {}).get(_ZONE, ""),
        "cpu": allocatable.get("cpu", ""),
        "memory": allocatable.get("memory", ""),
        "pods": pods,
        "podsAllowed": allocatable.get("pods", ""),
        "taints": [
            f"{taint['key']}{'=' + taint['value'] if taint.get('value') else ''}:{taint['effect']}"
            for taint in spec.get("taints") or ()
        ],
    }


def _print_table(rows: Sequence[JSON]) -> None:
    if not rows:
        print("no nodes")
        return
    table = [("NAME", "STATUS", "FAILS", "ZONE", "CPU", "MEMORY", "PODS", "TAINTS")]
    for row in rows:
        pods = f"{row['pods']}/{row['podsAllowed']}"
        taints = ",".join(row["taints"]) or "<none>"
        fails, zone = row["fails"] or "-", row["zone"] or "-"
        table.append((row["name"], row["status"], fails, zone, row["cpu"], row["memory"], pods, taints))
    columns = range(len(table[0]))
    widths = [text_width(line[column] for line in table) for column in columns]
    shown = fitting_columns(widths, _OPTIONAL_COLUMNS, output_columns(), gap=3)
    for line in table:
        print("   ".join(f"{line[column]:{widths[column]}}" for column in shown).rstrip())
