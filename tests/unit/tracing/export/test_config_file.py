"""OpenTelemetry's declarative configuration as OTEL_* variables."""

from __future__ import annotations

import os

import pytest
import yaml

from kubeloop.kube.user_error import UserError
from kubeloop.tracing.export.batch_thread import BatchSettings
from kubeloop.tracing.export.config_file import declared_variables, process_environment
from kubeloop.tracing.export.exporters import configured_exporters
from kubeloop.tracing.export.otlp_exporter import export_settings
from kubeloop.tracing.export.resource import resource_attributes
from kubeloop.tracing.metrics_interface import TraceMetrics
from kubeloop.tracing.sampling.samplers import DISABLED_SAMPLER, sampler_from_environment

DOCUMENT = """
file_format: "1.0"
disabled: ${DISABLED:-false}
resource:
  attributes:
    - name: service.name
      value: checkout, blue
    - name: k8s.cluster.name
      value: ${CLUSTER}
    - name: replicas
      value: 3
      type: int
  attributes_list: team=a
propagator: {composite: [{tracecontext: }]}
tracer_provider:
  processors:
    - batch:
        schedule_delay: 2000
        export_timeout: 20000
        max_queue_size: 3000
        max_export_batch_size: 300
        exporter:
          otlp_http:
            endpoint: https://${env:HOST:-collector}:4318/v1/traces
            tls: {ca_file: /ca.pem, key_file: /key.pem, cert_file: /cert.pem}
            headers:
              - name: authorization
                value: Bearer a,b=$$c
            headers_list: x=1
            compression: gzip
            timeout: 2500
    - simple:
        exporter:
          console:
  sampler:
    parent_based:
      root:
        trace_id_ratio_based:
          ratio: 0.25
"""
ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://not-used:4318", "OTEL_SERVICE_NAME": "not-used"}


def declared(tmp_path, text: str, **environ: str) -> dict[str, str]:
    path = tmp_path / "otel.yaml"
    path.write_text(text)
    variables = declared_variables({**environ, "OTEL_CONFIG_FILE": str(path)})
    assert variables is not None
    return variables


def provider(**fields: object) -> str:
    return yaml.safe_dump({"file_format": "1.0", "tracer_provider": fields})


def batch(exporter: object) -> dict[str, object]:
    return {"processors": [{"batch": {"exporter": exporter}}]}


def test_file_configures_sampler_exporters_and_resource(tmp_path, monkeypatch):
    for name, value in ENDPOINT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("CLUSTER", "blue")
    (tmp_path / "otel.yaml").write_text(DOCUMENT)
    monkeypatch.setenv("OTEL_CONFIG_FILE", str(tmp_path / "otel.yaml"))
    before = dict(os.environ)
    environ = process_environment()
    try:
        assert sampler_from_environment(environ).document() == {"sampler": "parentbased_traceidratio", "ratio": 0.25}
        settings = export_settings(environ)
        attributes = resource_attributes()
        assert process_environment() == environ
        assert environ["OTEL_TRACES_EXPORTER"] == "otlp,console"
    finally:
        os.environ.clear()
        os.environ.update(before)
    assert settings.url == "https://collector:4318/v1/traces"
    assert settings.headers == {"x": "1", "authorization": "Bearer a,b=$c"}
    assert (settings.attempt_seconds, settings.is_gzip) == (2.5, True)
    assert (settings.certificate, settings.client_certificate, settings.client_key) == (
        "/ca.pem",
        "/cert.pem",
        "/key.pem",
    )
    assert settings.batches == BatchSettings(3000, 300, 2.0, 20.0)
    expected = {"service.name": "checkout, blue", "k8s.cluster.name": "blue", "replicas": "3", "team": "a"}
    assert expected.items() <= attributes.items()


def test_without_the_variable_the_environment_counts():
    assert declared_variables(ENDPOINT) is None


@pytest.mark.parametrize(
    ("sampler", "expected"),
    [
        (None, {}),
        ({"always_on": None}, {"OTEL_TRACES_SAMPLER": "always_on"}),
        ({"always_off": {}}, {"OTEL_TRACES_SAMPLER": "always_off"}),
        ({"parent_based": None}, {"OTEL_TRACES_SAMPLER": "parentbased_always_on"}),
        ({"parent_based": {"root": {"always_off": None}}}, {"OTEL_TRACES_SAMPLER": "parentbased_always_off"}),
        (
            {"trace_id_ratio_based": {"ratio": "${RATIO}"}},
            {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.5"},
        ),
    ],
)
def test_samplers(tmp_path, sampler, expected):
    variables = declared(tmp_path, provider(sampler=sampler), RATIO="0.5", **ENDPOINT)
    assert variables == expected | {"OTEL_TRACES_EXPORTER": "none"}


@pytest.mark.parametrize(
    ("exporter", "endpoint", "protocol"),
    [
        ({"otlp_http": None}, "http://localhost:4318/v1/traces", "http/protobuf"),
        ({"otlp_grpc": {"endpoint": "http://collector:4317"}}, "http://collector:4317", "grpc"),
        ({"otlp_grpc": None}, "http://localhost:4317", "grpc"),
    ],
)
def test_otlp_exporters_have_the_defaults_of_the_specification(tmp_path, exporter, endpoint, protocol):
    variables = declared(tmp_path, provider(**batch(exporter)))
    assert variables["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] == endpoint
    assert variables["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"] == protocol


def test_disabled_file_and_file_without_provider_export_nothing(tmp_path):
    variables = declared(tmp_path, "file_format: '1.0'\ndisabled: true\n", **ENDPOINT)
    assert sampler_from_environment(variables) is DISABLED_SAMPLER
    assert configured_exporters(variables, TraceMetrics()) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "cannot read"),
        ("[]", "the document is list"),
        ("file_format: '2.0'", "file_format is '2.0'"),
        (provider(processors=[{"batch": {}}]), r"processors\[0\].batch.exporter has nothing"),
        (provider(**batch({"zipkin": {}})), "exporter has zipkin"),
        (provider(**batch({"otlp_http": {}, "console": {}})), "exporter has console, otlp_http"),
        (provider(**batch({"otlp_http": {"timeout": "soon"}})), "timeout is 'soon'"),
        (provider(**batch({"otlp_http": {"endpoint": "${A-B}"}})), "is no reference to a variable"),
        (provider(processors=[{"batch": {"exporter": {"otlp_http": None}}}] * 2), "has an exporter twice"),
        (provider(sampler={"jaeger_remote": {}}), "sampler has jaeger_remote"),
        (provider(sampler={"parent_based": {"root": {"parent_based": {}}}}), "root has parent_based"),
    ],
)
def test_what_is_not_supported_is_an_error_that_names_the_field(tmp_path, text, message):
    with pytest.raises(UserError, match=message) as raised:
        declared(tmp_path, text)
    assert str(tmp_path / "otel.yaml") in str(raised.value)
    assert raised.value.hint


def test_missing_file_is_an_error(tmp_path):
    with pytest.raises(UserError, match=r"cannot read .*none\.yaml"):
        declared_variables({"OTEL_CONFIG_FILE": str(tmp_path / "none.yaml")})
