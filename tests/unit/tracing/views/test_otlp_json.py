"""OTLP as JSON, written and read."""

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

from kubeloop.tracing.views.otlp_json import OtlpJsonError, from_otlp, to_otlp
from kubeloop.tracing.views.perfetto import to_perfetto
from kubeloop.tracing.views.pod_lines import pod_line


def to_json(documents):
    return json.dumps(to_otlp(documents, version="1.2")).encode()


def sorted_spans(document):
    return sorted(document["spans"], key=lambda span: span["spanId"])


def test_written_traces_are_read_back_unchanged(traces_of_rollout):
    back = from_otlp(to_json(traces_of_rollout))
    assert [document["traceId"] for document in back] == [document["traceId"] for document in traces_of_rollout]
    for document, original in zip(back, traces_of_rollout, strict=True):
        assert sorted_spans(document) == sorted_spans(json.loads(json.dumps(original)))
        assert document["spans"][0]["parentSpanId"] == ""
    assert [pod_line(document) for document in back[:2]] == [pod_line(document) for document in traces_of_rollout[:2]]


def test_written_json_matches_protobuf_definition(traces_of_rollout):
    value = json.loads(to_json(traces_of_rollout))

    def encode_ids(node):
        if isinstance(node, dict):
            for key, value in node.items():
                if key in ("traceId", "spanId", "parentSpanId"):
                    assert value == bytes.fromhex(value).hex()
                    node[key] = base64.b64encode(bytes.fromhex(value)).decode()
                else:
                    encode_ids(value)
        elif isinstance(node, list):
            for value in node:
                encode_ids(value)

    encode_ids(value)
    data = json_format.ParseDict(value, TracesData())  # rejects unknown names and types
    spans = data.resource_spans[0].scope_spans[0].spans
    assert len(spans) == sum(len(document["spans"]) for document in traces_of_rollout)
    root = traces_of_rollout[1]["spans"][0]
    pod_root = next(span for span in spans if span.span_id.hex() == root["spanId"])
    assert pod_root.start_time_unix_nano == root["start"]
    assert pod_root.links[0].trace_id.hex() == traces_of_rollout[2]["traceId"]
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
def test_responses_of_trace_stores_are_read(traces_of_rollout, wrapped):
    content = json.dumps(wrapped(to_otlp(traces_of_rollout, version="1"))).encode()
    assert [sorted_spans(document) for document in from_otlp(content)] == [
        sorted_spans(document) for document in from_otlp(to_json(traces_of_rollout))
    ]
    assert from_otlp(gzip.compress(content)) == from_otlp(content)


def test_documents_per_line_are_merged_by_trace(traces_of_rollout):
    parts = []
    for document in traces_of_rollout:
        parts += [  # as a batching exporter may split them
            json.dumps(to_otlp([{"traceId": document["traceId"], "spans": [span]}], version="1"))
            for span in reversed(document["spans"])
        ]
    back = from_otlp("\n".join([*parts, *parts[:3], ""]).encode())
    assert [sorted_spans(document) for document in back] == [
        sorted_spans(document) for document in from_otlp(to_json(traces_of_rollout))
    ]
    assert [document["spans"][0]["name"].partition(" ")[0] for document in back] == ["pod", "pod", "reconcile"]


def test_spans_of_other_services_follow_their_parent(traces_of_rollout):
    document = copy.deepcopy(traces_of_rollout[0])
    create = next(span for span in document["spans"] if span["name"] == "create")
    server = {**create, "name": "POST /api/v1/namespaces/{:namespace}/pods", "spanId": "00000000000000aa"}
    server |= {"parentSpanId": create["spanId"], "kind": "server", "service": "apiserver"}
    server["events"] = [{"name": "admitted", "time": create["start"], "attributes": {"plugins": [1, 2.5, True, "x"]}}]
    document["spans"].append(server)
    (back,) = from_otlp(to_json([document]))
    server_span = next(span for span in back["spans"] if span["spanId"] == server["spanId"])
    assert server_span == json.loads(json.dumps(server))
    assert back["spans"].index(server_span) == 1 + next(
        index for index, span in enumerate(back["spans"]) if span["name"] == "create"
    )


def test_numeric_strings_and_enum_names_are_read():
    nested = {"kvlistValue": {"values": [{"key": "a", "value": {}}]}}
    span = {"traceId": "AB" * 16, "spanId": "cd" * 8, "name": "x", "kind": "SPAN_KIND_CLIENT",
            "startTimeUnixNano": 5, "endTimeUnixNano": "4", "status": {"code": "STATUS_CODE_ERROR", "message": "no"},
            "attributes": [{"key": "n", "value": {"intValue": 7}}, {"key": "m", "value": nested}]}  # fmt: skip
    (document,) = from_otlp(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode())
    (parsed,) = document["spans"]
    assert document["traceId"] == "ab" * 16
    assert (parsed["start"], parsed["end"], parsed["kind"]) == (5, 5, "client")
    assert parsed["status"] == {"code": "ERROR", "message": "no"}
    assert parsed["attributes"] == {"n": 7, "m": {"a": ""}}


def test_spans_in_parent_cycle_are_read():
    def span(own, parent):
        return {"traceId": "ab" * 16, "spanId": own * 8, "parentSpanId": parent * 8, "startTimeUnixNano": "1"}

    spans = [span("aa", "bb"), span("bb", "aa"), span("cc", "cc")]
    (document,) = from_otlp(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).encode())
    assert {span_["spanId"] for span_ in document["spans"]} == {"aa" * 8, "bb" * 8, "cc" * 8}
    assert document["spans"][0]["parentSpanId"] == ""
    assert len([event for event in to_perfetto([document])["traceEvents"] if event["ph"] == "X"]) == 3


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
        (b'{"resourceSpans": [7]}', "resourceSpans[] is not an object"),
        (b'{"resourceSpans": [{"scopeSpans": {"a": 1}}]}', "scopeSpans is not a list"),
        (one_span(traceId="xyz"), "traceId 'xyz' is not an ID of 16 bytes"),
        (one_span(traceId="a" * 32, spanId="b" * 16), "startTimeUnixNano None is not a time"),
        (b"\x1f\x8b\x00", "broken gzip"),
    ],
)  # fmt: skip
def test_invalid_otlp_is_error(content, problem):
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
def test_any_json_is_read_or_rejected(value):
    try:
        documents = from_otlp(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [value]}]}]}).encode())
    except OtlpJsonError:
        return
    assert all(document["spans"] for document in documents)
