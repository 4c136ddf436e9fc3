"""Properties over made-up clusters: the snapshot kept up to date, array forms, and the class cache change no answer."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kubeloop.kube.objects.api_types import Node, Pod, convert
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.framework.fit_error import Diagnosis, NodeToStatus

APPS = ("web", "db")
ZONES = ("a", "b")
NAMES = tuple(f"node-{number}" for number in range(9))
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
QUICKLY = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])

selectors = st.sampled_from([{"matchLabels": {"app": app}} for app in APPS] + [{}, None])
keys = st.sampled_from(["kubernetes.io/hostname", "zone", "rack"])
taints = st.lists(
    st.sampled_from(
        [
            {"key": "gpu", "value": "yes", "effect": "NoSchedule"},
            {"key": "old", "effect": "PreferNoSchedule"},
            {"key": "gone", "effect": "NoExecute"},
        ]
    ),
    max_size=2,
    unique_by=lambda taint: taint["key"],
)
tolerations = st.lists(
    st.sampled_from(
        [{"key": "gpu", "operator": "Exists"}, {"key": "old", "operator": "Exists"}, {"operator": "Exists"}]
    ),
    max_size=2,
)


@st.composite
def nodes(draw: st.DrawFn, name: str) -> Node:
    labels = {"kubernetes.io/hostname": name}
    for key, values in (("zone", ZONES), ("rack", ("1", "2"))):
        value = draw(st.sampled_from((*values, None)))
        if value is not None:
            labels[key] = value
    allocatable = {"cpu": draw(st.sampled_from(["1", "2500m", "8"])), "memory": draw(st.sampled_from(["1Gi", "16Gi"])),
                   "pods": draw(st.sampled_from(["2", "5"]))}  # fmt: skip
    if draw(st.booleans()):
        allocatable["example.com/gpu"] = draw(st.sampled_from(["0", "2"]))
    images = draw(st.lists(st.sampled_from([{"names": ["app:1"], "sizeBytes": 700 << 20}]), max_size=1))
    return convert(
        Node,
        {
            "metadata": {"name": name, "uid": name, "labels": labels},
            "spec": {"taints": draw(taints), "unschedulable": draw(st.booleans()) and draw(st.booleans())},
            "status": {"allocatable": allocatable, "images": images},
        },
    )


def affinity_terms(weighted: bool) -> Any:
    term = st.builds(
        lambda selector, key, namespaces: {"labelSelector": selector, "topologyKey": key} | namespaces,
        selectors,
        keys,
        st.sampled_from([{}, {"namespaceSelector": {}}, {"namespaces": ["other"]}]),
    )
    if not weighted:
        return st.lists(term, max_size=1)
    weighted_term = st.builds(
        lambda term, weight: {"weight": weight, "podAffinityTerm": term}, term, st.sampled_from([1, 50])
    )
    return st.lists(weighted_term, max_size=1)


@st.composite
def pods(draw: st.DrawFn, name: str, node_name: str = "") -> Pod:
    spec: dict[str, Any] = {"nodeName": node_name, "tolerations": draw(tolerations)}
    requests = {}
    if draw(st.booleans()):
        requests = {"cpu": draw(st.sampled_from(["100m", "1"])), "memory": "300Mi"}
    if draw(st.integers(0, 5)) == 0:
        requests["example.com/gpu"] = "1"
    ports = [{"containerPort": 80, "hostPort": 80}] if draw(st.integers(0, 4)) == 0 else []
    spec["containers"] = [{"name": "c", "image": "app:1", "resources": {"requests": requests}, "ports": ports}]
    if draw(st.booleans()):
        spec["affinity"] = {
            kind: {REQUIRED: draw(affinity_terms(False)), PREFERRED: draw(affinity_terms(True))}
            for kind in ("podAffinity", "podAntiAffinity")
            if draw(st.booleans())
        }
        if draw(st.booleans()):
            expression = {"key": "zone", "operator": draw(st.sampled_from(["In", "NotIn"])), "values": ["a"]}
            exists = {"key": "rack", "operator": draw(st.sampled_from(["Exists", "DoesNotExist"]))}
            spec["affinity"]["nodeAffinity"] = {
                REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [expression]}, {"matchExpressions": [exists]}]},
                PREFERRED: [{"weight": 3, "preference": {"matchExpressions": [expression]}}],
            }
    if draw(st.booleans()):
        spec["topologySpreadConstraints"] = [
            {
                "maxSkew": draw(st.sampled_from([1, 2])),
                "topologyKey": draw(keys),
                "whenUnsatisfiable": draw(st.sampled_from(["DoNotSchedule", "ScheduleAnyway"])),
                "labelSelector": draw(selectors),
                "nodeTaintsPolicy": draw(st.sampled_from(["Honor", "Ignore"])),
            }
        ]
    labels = {"app": draw(st.sampled_from(APPS))}
    namespace = draw(st.sampled_from(["default", "default", "other"]))
    return convert(
        Pod, {"metadata": {"name": name, "uid": name, "namespace": namespace, "labels": labels}, "spec": spec}
    )


@st.composite
def populated(draw: st.DrawFn) -> tuple[list[Node], list[Pod]]:
    names = NAMES[: draw(st.integers(1, len(NAMES)))]
    made = [draw(nodes(name)) for name in names]
    placed = [draw(pods(f"old-{number}", draw(st.sampled_from(names)))) for number in range(draw(st.integers(0, 6)))]
    return made, placed


def described(snapshot: Snapshot) -> dict[str, Any]:
    """Everything the columns say, by node, in words that do not depend on how codes were given out.

    Not by row: a node that went and came back between two looks keeps its place until the next change of the order,
    as in kube-scheduler.
    """
    columns = snapshot.columns
    names = [info.name for info in snapshot.node_infos]
    assert snapshot.row_of == {name: row for row, name in enumerate(names)}
    cpu, gpu = columns.resource("cpu"), columns.resource("example.com/gpu")
    rows: dict[str, list[Any]] = {
        "cpu": columns.allocatable[cpu].tolist(),
        "gpu": columns.allocatable[gpu].tolist(),
        "cpu used": columns.requested[cpu].tolist(),
        "gpu used": columns.requested[gpu].tolist(),
        "non-zero": columns.non_zero.T.tolist(),
        "pods": columns.pod_count.tolist(),
        "unschedulable": columns.unschedulable.tolist(),
        "taints": [columns.taints.values[code] for code in columns.taints.codes.tolist()],
        "ports": [columns.used_ports.values[code] for code in columns.used_ports.codes.tolist()],
        "images": columns.image("app:1").sizes.tolist(),
        "anti": columns.affinities.weighted("anti", lambda of: len(of.required_anti_affinity_terms)).tolist(),
    }
    for key in ("kubernetes.io/hostname", "zone", "rack"):
        column = columns.labels(key)
        rows[key] = [column.values[code] if code >= 0 else None for code in column.codes.tolist()]
    for app in APPS:
        rows[app] = columns.pods.weighted(app, lambda of, app=app: of.labels.get("app") == app).tolist()
    columns.pods.check()
    columns.affinities.check()
    by_node = {name: {what: values[row] for what, values in rows.items()} for row, name in enumerate(names)}
    return by_node | {"with affinity": {info.name for info in snapshot.nodes_with_affinity_pods}}


@QUICKLY
@given(data=st.data())
def test_a_snapshot_kept_up_to_date_says_what_one_built_afresh_says(data: st.DataObject, plugin_cluster: Any) -> None:
    cluster = plugin_cluster()
    alive: dict[str, Node] = {}
    placed: dict[str, Pod] = {}
    for step in range(data.draw(st.integers(1, 14), label="steps")):
        action = data.draw(st.sampled_from(["node", "node", "drop node", "pod", "pod", "pod", "drop pod", "look"]))
        if action == "node":
            node = data.draw(nodes(data.draw(st.sampled_from(NAMES))))
            old = alive.get(node.metadata.name)
            cluster.cache.add_node(node) if old is None else cluster.cache.update_node(old, node)
            alive[node.metadata.name] = node
        elif action == "drop node" and alive:
            cluster.cache.remove_node(alive.pop(data.draw(st.sampled_from(sorted(alive)))))
        elif action == "pod" and alive:
            pod = data.draw(pods(f"pod-{step}", data.draw(st.sampled_from(sorted(alive)))))
            cluster.cache.add_pod(pod)
            placed[pod.metadata.name] = pod
        elif action == "drop pod" and placed:
            cluster.cache.remove_pod(placed.pop(data.draw(st.sampled_from(sorted(placed)))))
        elif action == "look":
            described(cluster.refresh())
    afresh = Snapshot()
    cluster.cache.update_snapshot(afresh)
    assert described(cluster.refresh()) == described(afresh)


@QUICKLY
@given(made=populated(), incoming=pods("incoming"))
def test_array_forms_agree_with_per_node_forms(
    made: tuple[list[Node], list[Pod]], incoming: Pod, plugin_cluster: Any
) -> None:
    cluster = plugin_cluster(*made)
    framework, snapshot, state, info = cluster.make_framework(), cluster.snapshot, CycleState(), PodInfo(incoming)
    _, rejection, _ = framework.run_pre_filter(state, info, snapshot)
    if rejection is not None:
        return
    for rows in (snapshot.all_rows, snapshot.all_rows[::2].copy()):
        for plugin in framework.filter:
            if plugin.name in state.skip_filter or not hasattr(plugin, "filter_rows"):
                continue
            verdicts = plugin.filter_rows(state, info, snapshot, rows)
            for index, row in enumerate(rows.tolist()):
                explained = None if verdicts.passed[index] else verdicts.explain(index)
                assert explained == plugin.filter(state, info, snapshot.node_infos[row]), plugin.name
            rejected = rows[~verdicts.passed]
            if len(rejected) and hasattr(plugin, "explain_rows"):
                at_once = plugin.explain_rows(state, info, snapshot, rejected)
                reasons = [at_once.statuses[code] for code in at_once.codes.tolist()]
                assert reasons == [plugin.filter(state, info, snapshot.node_infos[row]) for row in rejected.tolist()]
        framework.run_pre_score(state, info, snapshot, rows)
        for plugin in framework.score:
            if plugin.name in state.skip_score:
                continue
            by_rows = plugin.score_rows(state, info, snapshot, rows)
            per_node = [plugin.score(state, info, snapshot.node_infos[row]) for row in rows.tolist()]
            assert by_rows.tolist() == per_node, plugin.name
            assert by_rows.dtype == np.int64


def evaluated(framework: Any, snapshot: Snapshot, info: PodInfo) -> tuple[list[int], list[int], dict[str, Any]]:
    """(feasible rows, their totals, why the others are not)"""
    state = CycleState()
    _, rejection, _ = framework.run_pre_filter(state, info, snapshot)
    if rejection is not None:
        return [], [], {"": rejection}
    diagnosis = Diagnosis(NodeToStatus(snapshot))
    rows = framework.run_filters(state, info, snapshot, snapshot.all_rows, diagnosis)
    by_plugin = diagnosis.node_to_status.plugins()
    reasons = dict(diagnosis.node_to_status.items())
    assert by_plugin == Counter(status.plugin for status in reasons.values())
    if len(rows) == 0:
        return [], [], reasons
    framework.run_pre_score(state, info, snapshot, rows)
    return rows.tolist(), framework.run_scores(state, info, snapshot, rows).totals.tolist(), reasons


@QUICKLY
@given(made=populated(), data=st.data())
def test_the_class_cache_changes_no_verdict_and_no_score(made: Any, data: st.DataObject, plugin_cluster: Any) -> None:
    cluster = plugin_cluster(*made)
    cached, plain = cluster.make_framework(), cluster.make_framework(class_cache=False)
    templates = [data.draw(pods(f"template-{number}")) for number in range(2)]
    names = st.sampled_from([info.name for info in cluster.snapshot.node_infos])
    for step in range(5):
        template = templates[data.draw(st.integers(0, 1))]
        incoming = PodInfo(renamed(template, f"new-{step}", ""))
        for number in range(data.draw(st.integers(0, 2), label="nominations")):  # the incoming one's own is the first
            pod = data.draw(pods(f"nominated-{data.draw(st.integers(0, 3))}")) if number else incoming.pod
            cluster.pods.put(pod.key, pod)
            cluster.nominator.add(PodInfo(with_priority(pod, data.draw(st.integers(-1, 1)))), data.draw(names))
        with_cache = evaluated(cached, cluster.snapshot, incoming)
        assert with_cache == evaluated(plain, cluster.snapshot, incoming)
        cluster.nominator.check()
        if with_cache[0]:
            chosen = cluster.snapshot.node_infos[with_cache[0][int(np.argmax(with_cache[1]))]].name
            cluster.cache.assume_pod(renamed(template, f"new-{step}", chosen))
        cluster.refresh()


def with_priority(pod: Pod, priority: int) -> Pod:
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, priority=priority))


def renamed(pod: Pod, name: str, node_name: str) -> Pod:
    metadata = msgspec.structs.replace(pod.metadata, name=name, uid=name)
    return msgspec.structs.replace(pod, metadata=metadata, spec=msgspec.structs.replace(pod.spec, node_name=node_name))
