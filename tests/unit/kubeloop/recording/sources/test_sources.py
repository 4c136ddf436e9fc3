"""kubeloop/recording/sources: other inputs as recordings, with findings about what is not used."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
import yaml

from kubeloop.kube.objects.resources import CRON_JOBS, DEPLOYMENTS, NODES, PODS
from kubeloop.kube.user_error import UserError
from kubeloop.recording.changes import state_at
from kubeloop.recording.reader import RecordingFile
from kubeloop.recording.sources.collected import CollectedRecording
from kubeloop.recording.sources.csv_tables import read_csv_table
from kubeloop.recording.sources.manifests import read_manifest_files
from kubeloop.recording.sources.open import open_recording
from kubeloop.recording.sources.simkube import read_simkube_trace
from support.objects.recorded_objects import deployment, node, pod

TRACES = Path(__file__).resolve().parents[6] / "shared" / "traces"
needs_traces = pytest.mark.skipif(not TRACES.is_dir(), reason="no ../shared/traces")
CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "b"}}


def findings(recording):
    list(recording.changes())
    return [str(finding) for finding in recording.findings]


def without_kind(obj):
    return {name: value for name, value in obj.items() if name not in ("kind", "apiVersion")}


def test_list_in_any_order_with_server_fields(tmp_path):
    path = tmp_path / "all.yaml"
    bound = pod("web-1", "node-1", phase="Running")
    bound["metadata"]["creationTimestamp"] = "2026-02-03T04:05:06Z"
    path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": [bound, CONFIG_MAP, node("node-1")]}))
    recording = open_recording([path])
    state = state_at(recording)
    assert set(state.of(PODS)) == {"shop/web-1"}
    assert "resourceVersion" not in state.of(PODS)["shop/web-1"]["metadata"]
    assert set(state.of(NODES)) == {"node-1"}
    assert f"{recording.start:%Y-%m-%dT%H:%M:%S}" == "2026-02-03T04:05:06"
    (finding,) = findings(recording)
    assert (
        finding
        == f"{path}, item 2: 1 object of kind ConfigMap (v1); this kind decides about no pod here, and is left out"
    )


def test_object_that_no_server_stores_is_refused_with_its_place(tmp_path):
    path = tmp_path / "all.yaml"
    bad = node("node-1")
    bad["status"]["allocatable"]["cpu"] = "lots"
    path.write_text(yaml.safe_dump_all([node("node-0"), bad]))
    with pytest.raises(UserError, match=r"all.yaml, document 2: node node-1: quantities must match"):
        open_recording([path])


def test_folder_of_a_dump_is_read_with_its_subfolders(tmp_path):
    (tmp_path / "shop").mkdir()
    (tmp_path / "nodes.json").write_text(
        json.dumps({"kind": "NodeList", "apiVersion": "v1", "items": [node("node-1")]})
    )
    (tmp_path / "shop" / "pods.json").write_text(
        json.dumps({"kind": "PodList", "apiVersion": "v1", "items": [pod("a"), without_kind(pod("b"))]})
    )
    (tmp_path / "shop" / "jobs.json").write_text('{"kind":"JobList","apiVersion":"batch/v1","items":null}')
    (tmp_path / "shop" / "logs.txt").write_text("log")
    recording = open_recording([tmp_path])
    state = state_at(recording)
    assert set(state.of(PODS)) == {"shop/a", "shop/b"}
    assert findings(recording) == [f"{tmp_path}: 1 files are no manifests; only .yaml, .yml and .json files are read"]


@pytest.mark.parametrize("dump", [json.dumps, yaml.safe_dump])
def test_export_of_kube_scheduler_simulator(tmp_path, dump):
    path = tmp_path / "export.yaml"
    objects = [without_kind(obj) for obj in (pod("a"), node("node-1"))]
    path.write_text(
        dump(
            {
                "pods": objects[:1],
                "nodes": objects[1:],
                "pvs": [],
                "priorityClasses": [],
                "schedulerConfig": {"profiles": []},
                "extra": 1,
            }
        )
    )
    recording = open_recording([path])
    state = state_at(recording)
    assert set(state.of(PODS)) == {"shop/a"}
    assert state.of(NODES)["node-1"]["kind"] == "Node"
    texts = findings(recording)
    assert any("schedulerConfig: it has a scheduler configuration" in text for text in texts)
    assert any("extra: unknown field of an export" in text for text in texts)


def test_objects_of_older_versions_and_without_namespace(tmp_path):
    path = tmp_path / "old.json"
    old = deployment("web") | {"apiVersion": "apps/v1beta1"}
    del old["metadata"]["namespace"]
    path.write_text(json.dumps(old))
    state = state_at(open_recording([path]))
    assert state.of(DEPLOYMENTS)["default/web"]["apiVersion"] == "apps/v1"


def test_repeated_objects_and_missing_nodes_are_findings(tmp_path):
    path = tmp_path / "two.yaml"
    path.write_text(yaml.safe_dump_all([pod("a"), pod("a")]))
    texts = findings(open_recording([path]))
    assert any("pod shop/a: the object occurs more than once" in text for text in texts)
    assert any("there are no nodes" in text for text in texts)


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("x.yaml", "a: [", "x.yaml: .*"),
        ("x.yaml", "kind: Pod\n", "apiVersion not set"),
        ("x.json", '{"apiVersion":"v1","kind":"Pod","metadata":{}}', "metadata.name not set"),
        ("x.json", '{"pods":[7],"nodes":[]}', "x.json, pods 1: not an object"),
        ("x.csv", "a,b\n1,2\n", "line 1: a table of nodes or pods has the columns"),
        ("x.csv", "name,cpu_milli,memory_mib,num_gpu\np,many,1,0\n", "x.csv, line 2: invalid literal"),
        ("x.csv", "name,cpu_milli,memory_mib,creation_time,deletion_time\np,1,1,9,3\n", "deletion_time 3 is before"),
        ("x.sktrace", "junk", "not a trace of SimKube"),
    ],
)
def test_unreadable_input_is_an_error_with_its_place(tmp_path, name, text, problem):
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=problem):
        open_recording([tmp_path / name])


def test_files_that_cannot_be_combined_are_refused(tmp_path):
    with pytest.raises(UserError, match="cannot read"):
        open_recording([tmp_path / "none"])
    (tmp_path / "a.kubeloop").write_text('{"format":"kubeloop-recording","version":1,"start":"2026-01-01T00:00:00Z"}\n')
    assert isinstance(open_recording([tmp_path / "a.kubeloop"]), RecordingFile)
    with pytest.raises(UserError, match="cannot be combined"):
        open_recording(
            [tmp_path / "a.kubeloop", tmp_path / "b.yaml"] if (tmp_path / "b.yaml").write_text("") == 0 else []
        )
    for name in ("a.sktrace", "b.sktrace"):
        (tmp_path / name).write_bytes(msgspec.msgpack.encode({"version": 2, "events": []}))
    with pytest.raises(UserError, match="only one trace"):
        open_recording([tmp_path / "a.sktrace", tmp_path / "b.sktrace"])


def test_tables_of_nodes_and_pods(tmp_path):
    (tmp_path / "nodes.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\nn-1,64000,262144,2,P100\n")
    (tmp_path / "pods.csv").write_text(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,creation_time,deletion_time,colour\n"
        "p-1,6000,12288,1,460,P100|T4,LS,5,20,red\n"
    )
    recording = open_recording([tmp_path / "nodes.csv", tmp_path / "pods.csv"])
    changes = list(recording.changes())
    assert [(change.seconds, change.type, change.key) for change in changes] == [
        (0.0, "ADDED", "n-1"), (5.0, "ADDED", "default/p-1"), (20.0, "DELETED", "default/p-1"),
    ]  # fmt: skip
    assert changes[0].object["status"]["capacity"]["nvidia.com/gpu"] == "2"
    spec = changes[1].object["spec"]
    assert spec["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert "gpu-milli" in changes[1].object["metadata"]["annotations"]
    assert "colour: unknown column" in findings(recording)[0]


def simkube(path, **fields):
    path.write_bytes(msgspec.msgpack.encode({"version": 2, "config": {}, "index": {}, **fields}))
    return path


def test_simkube_trace_has_times_and_run_times(tmp_path):
    bare = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "x"}, "spec": {"containers": []}}
    widget = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}}
    events = [
        {"ts": 100, "applied_objs": [bare, widget], "deleted_objs": []},
        {"ts": 160, "applied_objs": [], "deleted_objs": [bare, bare]},
    ]
    lifecycles = {("v1.Pod", "x/a"): {7: [{"Finished": [101, 131]}, {"Running": 5}]}}
    recording = read_simkube_trace(simkube(tmp_path / "t.sktrace", events=events, pod_lifecycles=lifecycles)).finish()
    changes = list(recording.changes())
    assert [(change.seconds, change.type) for change in changes] == [(0.0, "ADDED"), (60.0, "DELETED")]
    assert changes[0].object["metadata"]["annotations"] == {"kubeloop.dev/run-seconds": "30"}
    texts = findings(recording)
    assert any("event 2, deleted_objs 2: pod x/a: it is deleted, but was not created" in text for text in texts)
    assert any("event 1, applied_objs 2: 1 object of kind Widget (example.com/v1)" in text for text in texts)
    with pytest.raises(UserError, match="version 9 of SimKube's format"):
        read_simkube_trace(simkube(tmp_path / "v.sktrace", version=9, events=[]))


def test_simkube_pod_has_no_volume_with_a_token(tmp_path):
    mounts = [{"name": "kube-api-access-x", "mountPath": "/t"}, {"name": "data", "mountPath": "/d"}]
    spec = {
        "containers": [{"name": "a", "image": "a", "volumeMounts": mounts}],
        "volumes": [{"name": "kube-api-access-x", "projected": {}}, {"name": "data", "emptyDir": {}}],
    }
    bare = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "x"}, "spec": spec}
    events = [{"ts": 1, "applied_objs": [bare], "deleted_objs": []}]
    (change,) = read_simkube_trace(simkube(tmp_path / "t.sktrace", events=events)).changes()
    assert change.object["spec"]["volumes"] == spec["volumes"][1:]
    assert change.object["spec"]["containers"][0]["volumeMounts"] == mounts[1:]


@needs_traces
@pytest.mark.parametrize(
    ("name", "resource", "objects", "end"),
    [("bare-pods", PODS, 4, 162.0), ("cronjob", CRON_JOBS, 0, 205.0), ("dsb-scaling", DEPLOYMENTS, 27, 1_134.0)],
)
def test_examples_of_simkube_are_read(name, resource, objects, end):
    recording = open_recording([TRACES / "simkube" / f"{name}.sktrace"])
    changes = list(recording.changes())
    assert changes[-1].seconds == end
    assert len(state_at(recording).of(resource)) == objects
    assert [text.partition(": ")[2][:18] for text in findings(recording)] == ["there are no nodes"]


@needs_traces
def test_production_trace_of_a_gpu_cluster_is_read():
    recording = CollectedRecording("openb")
    for name in ("nodes", "pods-default"):
        read_csv_table(recording, TRACES / "openb" / f"{name}.csv")
    changes = list(recording.changes())
    assert sum(change.type == "ADDED" for change in changes) == 1_213 + 8_152
    assert sum(change.resource == "nodes" for change in changes) == 1_213
    assert recording.finish().findings == []


def test_reading_a_folder_counts_its_size(tmp_path):
    (tmp_path / "a.yaml").write_text("x" * 100)
    sizes = []
    with pytest.raises(UserError):
        read_manifest_files(CollectedRecording("x"), tmp_path, on_bytes=sizes.append)
    assert sizes == [100]
