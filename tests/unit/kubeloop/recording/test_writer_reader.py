"""kubeloop/recording/writer.py and reader.py: what is written is read, also after a cut, a restart and an edit."""

from __future__ import annotations

import asyncio
import gzip
import json

import pytest

from kubeloop.kube.clock import SystemClock
from kubeloop.kube.objects.resources import PODS
from kubeloop.kube.user_error import UserError
from kubeloop.recording.changes import ClusterState, RecordedChange, apply_change, state_at
from kubeloop.recording.memory import MEMORY_PER_BYTE, MemoryLimit
from kubeloop.recording.reader import RecordingFile
from kubeloop.recording.resources import RECORDED, recorded_resource, resource_of_kind
from kubeloop.recording.writer import Header, RecordingWriter
from support.objects.recorded_objects import node, pod

pytestmark = pytest.mark.virtual_time


@pytest.fixture
def path(tmp_path):
    return tmp_path / "day.kubeloop"


def new_writer(path, clock):
    return RecordingWriter.create(path, Header(server="https://cluster"), clock=clock)


def write_list(writer, resource, objects, version=""):
    writer.start_list(resource)
    for obj in objects:
        writer.put(resource, obj)
    writer.end_list(resource, version)


def advance(seconds):
    asyncio.get_running_loop().advance(seconds)


def killed(path, writer):
    """Leave the file as it is when the process is killed now."""
    data = path.read_bytes()
    writer.close()
    path.write_bytes(data)


async def test_changes_are_read_in_order_with_their_times(path, clock):
    writer = new_writer(path, clock)
    write_list(writer, "nodes", [node("node-1")])
    write_list(writer, "pods", [pod("web-1")])
    advance(5.25)
    writer.put("pods", pod("web-1", "node-1", phase="Running"))
    writer.put("pods", pod("web-1", "node-1", phase="Running"))  # nothing has changed
    writer.put("pods", pod("web-2"))
    advance(1)
    writer.delete("pods", pod("web-1"))
    writer.close()
    recording = RecordingFile(path)
    changes = list(recording.changes())
    assert [(it.seconds, it.type, it.resource, it.key, it.initial) for it in changes] == [
        (0.0, "ADDED", "nodes", "node-1", True),
        (0.0, "LISTED", "nodes", "", False),
        (0.0, "ADDED", "pods", "shop/web-1", True),
        (0.0, "LISTED", "pods", "", False),
        (5.25, "MODIFIED", "pods", "shop/web-1", False),
        (5.25, "ADDED", "pods", "shop/web-2", False),
        (6.25, "DELETED", "pods", "shop/web-1", False),
    ]
    assert changes[4].before["spec"].get("nodeName") is None
    assert changes[4].object["spec"]["nodeName"] == "node-1"
    assert changes[4].object["metadata"] == changes[2].object["metadata"]
    assert recording.findings == []
    assert recording.header.server == "https://cluster"
    assert set(state_at(recording).objects["pods"]) == {"shop/web-2"}
    assert state_at(recording, 5.0).objects["pods"]["shop/web-1"]["status"]["phase"] == "Pending"
    assert (state_at(recording).moment - recording.start).total_seconds() == 6.25


async def test_line_of_a_change_has_only_the_changed_fields(path, clock):
    writer = new_writer(path, clock)
    writer.put("pods", pod("web-1", "node-1"))
    writer.put("pods", pod("web-1", "node-1", phase="Running"))
    writer.close()
    lines = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    assert lines[2]["set"] == "pods"
    assert lines[2]["key"] == "shop/web-1"
    assert list(lines[2]["fields"]) == ["status"]


async def test_flushed_changes_survive_sigkill(path, clock):
    writer = new_writer(path, clock)
    writer.put("pods", pod("web-1"))
    writer.flush()
    writer.put("pods", pod("web-2"))
    killed(path, writer)
    recording = RecordingFile(path)
    assert set(state_at(recording).objects["pods"]) == {"shop/web-1"}
    (finding,) = recording.findings
    assert str(finding).startswith(f"{path}, line 3: the recording ends at 0.0 s without its end mark")


async def test_restart_continues_the_file_and_lists_again(path, clock):
    writer = new_writer(path, clock)
    write_list(writer, "pods", [pod("web-1"), pod("web-2")])
    writer.flush()
    writer.put("pods", pod("lost"))  # not flushed
    killed(path, writer)
    advance(60)
    first = RecordingFile(path)
    writer = RecordingWriter.append(path, first.header, first.start_ns, clock=clock)
    write_list(writer, "pods", [pod("web-2", "node-1"), pod("web-3")])
    writer.close()
    recording = RecordingFile(path)
    changes = [(it.seconds, it.type, it.key) for it in recording.changes()][3:]
    assert changes == [
        (60.0, "RESTART", ""),
        (60.0, "MODIFIED", "shop/web-2"),
        (60.0, "ADDED", "shop/web-3"),
        (60.0, "DELETED", "shop/web-1"),
        (60.0, "LISTED", ""),
    ]
    (finding,) = recording.findings
    assert "changes between 0.0 s and 60.0 s may be missing (the recorder was restarted)" in str(finding)


async def test_gap_is_marked_and_unchanged_objects_stay(path, clock):
    writer = new_writer(path, clock)
    write_list(writer, "pods", [pod("web-1"), pod("web-2"), pod("web-3")])
    since_ns = clock.time_ns()
    advance(30)
    writer.gap("pods", since_ns, "7")
    write_list(writer, "pods", [pod("web-1"), pod("web-2", "node-1")], version="9")
    writer.close()
    recording = RecordingFile(path)
    changes = [(it.type, it.key) for it in recording.changes()][4:]
    assert changes == [("GAP", ""), ("MODIFIED", "shop/web-2"), ("DELETED", "shop/web-3"), ("LISTED", "")]
    assert list(map(str, recording.findings)) == [
        f"{path}, line 7: pods: changes between 0.0 s and 30.0 s may be missing "
        "(the watch expired, resourceVersion 7 to 9); "
        "objects that existed only between are not part of the result"
    ]


async def test_gap_before_lists_that_fail_is_one_finding(path, clock):
    writer = new_writer(path, clock)
    write_list(writer, "pods", [])
    since_ns = clock.time_ns()
    for _ in range(2):
        advance(30)
        writer.gap("pods", since_ns, "7")
        writer.start_list("pods")
    writer.close()
    recording = RecordingFile(path)
    list(recording.changes())
    (finding,) = recording.findings
    assert finding.problem.startswith("changes between 0.0 s and 60.0 s may be missing")
    assert "resourceVersion 7 to unknown" in finding.problem


async def test_object_of_the_same_name_is_a_new_one(path, clock):
    writer = new_writer(path, clock)
    writer.put("pods", pod("web-1"))
    writer.put("pods", pod("web-1") | {"metadata": {**pod("web-1")["metadata"], "uid": "other"}})
    writer.close()
    assert [it.type for it in RecordingFile(path).changes()] == ["ADDED", "DELETED", "ADDED"]


async def test_quiet_recording_has_a_time_each_minute(path, clock):
    writer = new_writer(path, clock)
    writer.flush()
    for _ in range(600):
        advance(1)
        writer.flush()
    writer.close()
    lines = gzip.decompress(path.read_bytes()).splitlines()
    assert len([line for line in lines if b'"sync"' in line]) == 12


async def test_omitted_resources_are_findings(path, clock):
    writer = new_writer(path, clock)
    writer.omit("resourcequotas", "the user may not list it")
    writer.close()
    recording = RecordingFile(path)
    list(recording.changes())
    assert recording.omitted == {"resourcequotas": "the user may not list it"}
    assert "a cluster without resourcequotas" in str(recording.findings[0])


async def test_recording_larger_than_memory_is_refused(path, clock):
    writer = new_writer(path, clock)
    for number in range(20):
        writer.put("pods", pod(f"web-{number}"))
        writer.delete("pods", pod(f"web-{number}"))
    for number in range(20):
        writer.put("pods", pod(f"db-{number}"))
    writer.close()
    size = max(map(len, gzip.decompress(path.read_bytes()).splitlines()))
    with pytest.raises(UserError, match="the cluster is larger than memory"):
        state_at(RecordingFile(path, limit=MemoryLimit("x", 10 * size * MEMORY_PER_BYTE)))
    recording = RecordingFile(path, limit=MemoryLimit("x", 20 * size * MEMORY_PER_BYTE))
    for _ in range(2):  # it is read twice by a replay
        assert len(state_at(recording).of(PODS)) == 20


def edited(path, change):
    lines = gzip.decompress(path.read_bytes()).splitlines()
    path.write_bytes(b"\n".join(change(lines)) + b"\n")


async def test_edited_lines_are_named(path, clock):
    writer = new_writer(path, clock)
    writer.put("pods", pod("web-1"))
    writer.close()
    edited(path, lambda lines: [line.replace(b"Pending", b"Running") for line in lines])
    recording = RecordingFile(path)
    assert state_at(recording).objects["pods"]["shop/web-1"]["status"]["phase"] == "Running"
    (finding,) = recording.findings
    assert "lines 1 to 3 are not those that were recorded" in str(finding)


@pytest.mark.parametrize("with_checksum", [True, False])
@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        pytest.param(b'"500m"', b'"lots"', "pod shop/web-1: quantities must match", id="quantity"),
        pytest.param(b'"Pending"', b"7", "cannot unmarshal number into Go struct field PodStatus", id="type"),
        pytest.param(b'"Pod"', b'"Potato"', "the kind is 'Potato'", id="kind"),
    ],
)
async def test_edited_object_that_no_server_stores_is_refused(path, clock, old, new, problem, with_checksum):
    writer = new_writer(path, clock)
    writer.put("nodes", node("node-1"))
    writer.put("pods", pod("web-1"))
    writer.close()
    assert any(old in line for line in gzip.decompress(path.read_bytes()).splitlines() if b'"put":"pods"' in line)
    edited(
        path,
        lambda lines: [
            line.replace(old, new) if b'"put":"pods"' in line else line
            for line in lines
            if with_checksum or b'"sync"' not in line
        ],
    )
    for seconds in (None, 0.0):
        with pytest.raises(UserError, match=rf"day.kubeloop, line 3: .*{problem}"):
            state_at(RecordingFile(path), seconds)


async def test_compressed_file_that_is_cut_off_in_its_first_line_is_named(path, clock):
    new_writer(path, clock).close()
    path.write_bytes(path.read_bytes()[:8])
    with pytest.raises(UserError, match="line 1: the file is cut off"):
        RecordingFile(path)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"{", "line 2: not a line of a recording"),
        (b"[1]", "line 2: not a line of a recording"),
        (b'{"put":"pods"}', "line 2: the line has no time t"),
        (b'{"t":1}', "line 2: neither an object nor a mark"),
        (b'{"t":1,"put":"pods","object":{}}', "line 2: incomplete line"),
        (b'{"t":1,"put":"pods","object":{"metadata":{"name":"a","uid":"u"}}}', "line 2: the object pods a has no kind"),
        (
            b'{"t":1,"put":"pods","object":{"kind":"Pod","metadata":{"name":"a","namespace":"b"}}}',
            "line 2: the object pods b/a has no metadata.uid",
        ),
        (b'{"t":1,"mark":"listed"}', "line 2: incomplete line"),
    ],
)
async def test_unreadable_line_is_an_error_with_its_number(path, clock, line, problem):
    new_writer(path, clock).close()
    edited(path, lambda lines: [lines[0], line])
    with pytest.raises(UserError, match=problem):
        list(RecordingFile(path).changes())


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b'{"t":1,"set":"pods","key":"shop/x","fields":{}}', "pods shop/x: the change is of an object that"),
        (b'{"t":1,"put":"widgets.example.com","object":{}}', "unknown resource widgets.example.com"),
        (b'{"t":1,"mark":"pause"}', "unknown mark 'pause'"),
    ],
)
async def test_line_that_cannot_be_used_is_a_finding(path, clock, line, problem):
    new_writer(path, clock).close()
    edited(path, lambda lines: [lines[0], line, *lines[1:]])
    recording = RecordingFile(path)
    list(recording.changes())
    assert f"{path}, line 2: {problem}" in str(recording.findings[0])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"", "line 1: not a recording of kubeloop"),
        (b"apiVersion: v1\n", "line 1: not a recording of kubeloop"),
        (b'{"format":"kubeloop-recording","version":9,"kubeloop":"9.1"}\n', "line 1: version 9 of the format"),
        (b'{"format":"kubeloop-recording","version":1,"start":"noon"}\n', "line 1: the start 'noon' is not a time"),
    ],
)
def test_other_files_are_refused(path, text, problem):
    path.write_bytes(text)
    with pytest.raises(UserError, match=problem):
        RecordingFile(path)


def test_missing_file_is_refused(path):
    with pytest.raises(UserError, match="cannot read"):
        RecordingFile(path)


def test_existing_file_is_not_overwritten(path):
    path.write_bytes(b"x")
    with pytest.raises(UserError, match="exists"):
        RecordingWriter.create(path, Header(), clock=SystemClock())
    with pytest.raises(UserError, match="cannot continue"):
        RecordingWriter.append(path, Header(), 0, clock=SystemClock())


async def test_times_do_not_go_back(path, clock):
    new_writer(path, clock).close()
    line = b'{"t":100,"mark":"list","resource":"pods"}'
    edited(path, lambda lines: [lines[0], line, b'{"t":1,"mark":"listed","resource":"pods"}', *lines[1:]])
    recording = RecordingFile(path)
    assert [it.seconds for it in recording.changes()] == [100.0]
    assert "the time goes back from 100.0 s to 1 s" in str(recording.findings[0])


def test_no_secrets_and_config_maps_are_recorded():
    assert not {resource.kind for resource in RECORDED} & {"Secret", "ConfigMap", "ServiceAccount"}
    assert recorded_resource("secrets") is None
    assert resource_of_kind("apps/v1beta1", "Deployment").plural == "deployments"


def test_state_has_the_objects_of_its_changes():
    state = ClusterState(SystemClock().now())
    state.put(PODS, pod("web-1"))
    assert set(state.of(PODS)) == {"shop/web-1"}
    apply_change(state, RecordedChange(0.0, "DELETED", "pods", "shop/web-1", pod("web-1")))
    assert state.of(PODS) == {}
