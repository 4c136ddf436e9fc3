"""Traces as files: OTLP written and read back, and Chrome trace events."""

from __future__ import annotations

import base64
import copy
import gzip
import json

import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from kubeloop.tracing.recording.pod_recorder import AttemptFacts
from kubeloop.tracing.views.otlp_json import OtlpJsonError, from_otlp, to_otlp
from kubeloop.tracing.views.perfetto import to_perfetto
from kubeloop.tracing.views.pod_lines import pod_line


@pytest.fixture
def traced(tracing, pod, hand_clock):
    """Documents of two pods of a ReplicaSet, the second after a failed attempt, and of the reconcile that made them."""
    traces = tracing.pods
    reconcile = tracing.reconciles.reconcile("replicaset", "shop/web-5f", "replicas")
    for name, attempts in (("web-5f-a", 1), ("web-5f-b", 2)):
        traceparent = traces.new_traceparent()
        traces.create_requested(
            traceparent,
            namespace="shop",
            owner_kind="ReplicaSet",
            owner_name="web-5f",
            start_ns=hand_clock.ns,
            link=reconcile.traceparent,
        )
        started_ns = hand_clock.ns
        hand_clock.pass_ms(2)
        pending = pod(name, traceparent=traceparent)
        traces.observed(pending)
        hand_clock.pass_ms(1.5)
        traces.created(traceparent, pending, hand_clock.ns)  # the answer comes after the watch
        reconcile.add_action(f"create pod {name}", start_ns=started_ns, link=traceparent)
        for attempt in range(1, attempts + 1):
            traces.queued(pending, "active", "PodAdd")
            hand_clock.pass_ms(0.25)
            traces.attempt_started(pending, attempt)
            begun = hand_clock.ns
            hand_clock.pass_ms(0.123456)
            last = attempt == attempts
            facts = AttemptFacts(
                "scheduled" if last else "unschedulable",
                nodes=3,
                feasible=3 if last else 0,
                rejections={} if last else {"NodeAffinity": 3},
                filter_ns=(begun, hand_clock.ns),
                score_ns=(hand_clock.ns, hand_clock.ns) if last else None,
                scores=[("n1", 100), ("n2", 90)],
                message="" if last else "0/3 nodes are available",
            )
            traces.attempt_finished(pending, facts)
            if not last:
                traces.queued(pending, "unschedulable", "ScheduleAttemptFailure")
                hand_clock.pass_ms(40)
        traces.bind_started(pending, "n1")
        hand_clock.pass_ms(3)
        traces.bind_finished(pending)
        hand_clock.pass_ms(1)
        traces.observed(pod(name, traceparent=traceparent, node="n1"))
    reconcile.finish(True)
    memory = tracing.recent
    return [memory.find_pod_trace("shop", "web-5f-a"), memory.find_pod_trace("shop", "web-5f-b"), *memory.reconciles()]


def written(documents):
    return json.dumps(to_otlp(documents, version="1.2")).encode()


def sorted_spans(document):
    return sorted(document["spans"], key=lambda span: span["spanId"])


def test_what_is_written_is_read_back_as_it_was(traced):
    back = from_otlp(written(traced))
    assert [document["traceId"] for document in back] == [document["traceId"] for document in traced]
    for document, original in zip(back, traced, strict=True):
        assert sorted_spans(document) == sorted_spans(json.loads(json.dumps(original)))
        assert document["spans"][0]["parentSpanId"] == ""
    assert [pod_line(document) for document in back[:2]] == [pod_line(document) for document in traced[:2]]


def test_what_is_written_is_otlp_by_its_protobuf_definition(traced):
    value = json.loads(written(traced))

    def ids_as_protobuf_wants_them(node):
        if isinstance(node, dict):
            for key, each in node.items():
                if key in ("traceId", "spanId", "parentSpanId"):
                    assert each == bytes.fromhex(each).hex()
                    node[key] = base64.b64encode(bytes.fromhex(each)).decode()
                else:
                    ids_as_protobuf_wants_them(each)
        elif isinstance(node, list):
            for each in node:
                ids_as_protobuf_wants_them(each)

    ids_as_protobuf_wants_them(value)
    data = json_format.ParseDict(value, TracesData())  # refuses names and types it does not know
    spans = data.resource_spans[0].scope_spans[0].spans
    assert len(spans) == sum(len(document["spans"]) for document in traced)
    root = traced[1]["spans"][0]
    found = next(span for span in spans if span.span_id.hex() == root["spanId"])
    assert found.start_time_unix_nano == root["start"]
    assert found.links[0].trace_id.hex() == traced[2]["traceId"]
    assert {span.status.code for span in spans} == {0, 2}
    assert data.resource_spans[0].resource.attributes[0].value.string_value == "kubeloop"


def base64_ids(value):
    text = json.dumps(value)
    for span in value["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        for identity in (span["traceId"], span["spanId"]):
            text = text.replace(f'"{identity}"', json.dumps(base64.b64encode(bytes.fromhex(identity)).decode()))
    return json.loads(text)


@pytest.mark.parametrize(
    "wrapped",
    [
        pytest.param(lambda value: value, id="ExportTraceServiceRequest"),
        pytest.param(lambda value: {"batches": base64_ids(value)["resourceSpans"]}, id="Tempo: batches, base64 ids"),
        pytest.param(lambda value: {"trace": value}, id="Tempo v2"),
        pytest.param(lambda value: {"result": value}, id="Jaeger v3"),
    ],
)
def test_the_answers_of_trace_stores_are_read(traced, wrapped):
    content = json.dumps(wrapped(to_otlp(traced, version="1"))).encode()
    assert [sorted_spans(each) for each in from_otlp(content)] == [
        sorted_spans(each) for each in from_otlp(written(traced))
    ]
    assert from_otlp(gzip.compress(content)) == from_otlp(content)


def test_one_document_a_line_is_read_and_spans_of_a_trace_come_together(traced):
    parts = []
    for document in traced:
        parts += [  # as a batching exporter may spread them
            json.dumps(to_otlp([{"traceId": document["traceId"], "spans": [span]}], version="1"))
            for span in reversed(document["spans"])
        ]
    back = from_otlp("\n".join([*parts, *parts[:3], ""]).encode())
    assert [sorted_spans(each) for each in back] == [sorted_spans(each) for each in from_otlp(written(traced))]
    assert [each["spans"][0]["name"].partition(" ")[0] for each in back] == ["pod", "pod", "reconcile"]


def test_spans_of_another_service_keep_their_service_and_stand_under_their_parent(traced):
    document = copy.deepcopy(traced[0])
    create = next(span for span in document["spans"] if span["name"] == "create")
    server = {**create, "name": "POST /api/v1/namespaces/{:namespace}/pods", "spanId": "00000000000000aa"}
    server |= {"parentSpanId": create["spanId"], "kind": "server", "service": "apiserver"}
    server["events"] = [{"name": "admitted", "time": create["start"], "attributes": {"plugins": [1, 2.5, True, "x"]}}]
    document["spans"].append(server)
    (back,) = from_otlp(written([document]))
    found = next(span for span in back["spans"] if span["spanId"] == server["spanId"])
    assert found == json.loads(json.dumps(server))
    assert back["spans"].index(found) == 1 + next(
        index for index, span in enumerate(back["spans"]) if span["name"] == "create"
    )


def test_numbers_as_text_or_not_and_enums_by_name_are_read():
    nested = {"kvlistValue": {"values": [{"key": "a", "value": {}}]}}
    span = {"traceId": "AB" * 16, "spanId": "cd" * 8, "name": "x", "kind": "SPAN_KIND_CLIENT",
            "startTimeUnixNano": 5, "endTimeUnixNano": "4", "status": {"code": "STATUS_CODE_ERROR", "message": "no"},
            "attributes": [{"key": "n", "value": {"intValue": 7}}, {"key": "m", "value": nested}]}  # fmt: skip
    (document,) = from_otlp(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode())
    (read,) = document["spans"]
    assert document["traceId"] == "ab" * 16
    assert (read["start"], read["end"], read["kind"]) == (5, 5, "client")
    assert read["status"] == {"code": "ERROR", "message": "no"}
    assert read["attributes"] == {"n": 7, "m": {"a": ""}}


def test_spans_that_are_each_others_parents_are_shown_all_the_same():
    def span(own, parent):
        return {"traceId": "ab" * 16, "spanId": own * 8, "parentSpanId": parent * 8, "startTimeUnixNano": "1"}

    spans = [span("aa", "bb"), span("bb", "aa"), span("cc", "cc")]
    (document,) = from_otlp(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).encode())
    assert {each["spanId"] for each in document["spans"]} == {"aa" * 8, "bb" * 8, "cc" * 8}
    assert document["spans"][0]["parentSpanId"] == ""
    assert len([each for each in to_perfetto([document])["traceEvents"] if each["ph"] == "X"]) == 3


def one_span(**span):
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "not JSON"),
        (b"hello", "not JSON"),
        (b'{"resourceSpans": [\n', "not JSON"),
        (b'{"resourceSpans": []}\n{"resourceSpans": [}\n', "line 2 is not JSON"),
        (b"[]", "no resourceSpans"),
        (b'{"spans": []}', "no resourceSpans"),
        (b'{"resourceSpans": [7]}', "resourceSpans[] is no object"),
        (b'{"resourceSpans": [{"scopeSpans": {"a": 1}}]}', "scopeSpans is no list"),
        (one_span(traceId="xyz"), "traceId 'xyz' is no id of 16 bytes"),
        (one_span(traceId="a" * 32, spanId="b" * 16), "startTimeUnixNano None is no time"),
        (b"\x1f\x8b\x00", "broken gzip"),
    ],
)  # fmt: skip
def test_what_is_no_otlp_is_told(content, problem):
    with pytest.raises(OtlpJsonError, match=problem.replace("[", r"\[")):
        from_otlp(content)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["resourceSpans", "scopeSpans", "spans", "traceId", "spanId", "attributes", "value", "key",
                         "startTimeUnixNano", "status", "links", "events", "kind", "resource", "intValue", "code"]),
        inner, max_size=4),
)  # fmt: skip


@given(values)
def test_whatever_stands_in_a_file_is_read_or_refused_and_nothing_else(value):
    try:
        documents = from_otlp(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [value]}]}]}).encode())
    except OtlpJsonError:
        return
    assert all(document["spans"] for document in documents)


def test_perfetto_has_one_track_a_pod_whose_slices_nest(traced):
    found = json.loads(json.dumps(to_perfetto(traced)))
    events = found["traceEvents"]
    assert found["otherData"]["startTimeUnixNano"] == str(min(document["spans"][0]["start"] for document in traced))
    processes = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert sorted(processes.values()) == ["reconcile replicaset", "shop deployment/web"]
    assert sorted(threads.values()) == ["shop/web-5f", "web-5f-a", "web-5f-b"]
    slices = [event for event in events if event["ph"] == "X"]
    assert len(slices) == sum(len(document["spans"]) for document in traced)
    assert {event["ph"] for event in events} == {"M", "X", "i"}
    assert [event["name"] for event in events if event["ph"] == "i"] == ["rejected"]
    for track in threads:
        stack = []
        ours = [event for event in slices if (event["pid"], event["tid"]) == track]
        assert ours
        for event in ours:
            begin, end = round(event["ts"] * 1000), round((event["ts"] + event["dur"]) * 1000)
            assert begin >= 0
            while stack and stack[-1] <= begin:
                stack.pop()
            assert not stack or end <= stack[-1], event
            stack.append(end)
    filters = [event for event in slices if event["name"] == "filter"]
    assert {event["args"].get("kubeloop.rejected.NodeAffinity") for event in filters} == {None, 3}
    attempt = next(event for event in slices if event["name"].startswith("scheduling") and "error" in event["args"])
    assert attempt["dur"] == pytest.approx(123.456)


def test_perfetto_of_nothing_is_an_empty_trace():
    assert to_perfetto([])["traceEvents"] == []
