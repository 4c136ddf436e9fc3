"""OpenTelemetry's declarative configuration (OTEL_CONFIG_FILE) as the OTEL_* variables that mean the same.

The file replaces all OTEL_* variables, but may refer to any variable as ${NAME} or ${NAME:-default}. Sections other
than `disabled`, `resource` and `tracer_provider` have no effect. Source: https://opentelemetry.io/docs/specs/otel/configuration,
the schema opentelemetry-configuration 1.0.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from kubeloop.kube.user_error import UserError

VARIABLE = "OTEL_CONFIG_FILE"
_REFERENCE = re.compile(r"\$\$|\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}\n]*))?\}|\$\{([^}]*)\}")
_EXPORTER = "OTEL_EXPORTER_OTLP_TRACES_"
_BATCH = {
    "schedule_delay": "OTEL_BSP_SCHEDULE_DELAY",
    "export_timeout": "OTEL_BSP_EXPORT_TIMEOUT",
    "max_queue_size": "OTEL_BSP_MAX_QUEUE_SIZE",
    "max_export_batch_size": "OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
}
_TLS = {"ca_file": "CERTIFICATE", "cert_file": "CLIENT_CERTIFICATE", "key_file": "CLIENT_KEY"}
_EXPORTERS = {"otlp_http": "http/protobuf", "otlp_grpc": "grpc"}

Section = dict[str, Any]


def process_environment() -> Mapping[str, str]:
    """Return os.environ, in which a file of OTEL_CONFIG_FILE replaces OTEL_*: exporters of the SDK read it there."""
    declared = declared_variables(os.environ)
    if declared is not None:
        for name in [name for name in os.environ if name.startswith("OTEL_")]:
            del os.environ[name]
        os.environ.update(declared)
    return os.environ


def declared_variables(environ: Mapping[str, str]) -> dict[str, str] | None:
    """Return the variables of the file that OTEL_CONFIG_FILE names; None if it names none. Raises UserError."""
    path = environ.get(VARIABLE, "").strip()
    if not path:
        return None
    from kubeloop.kube import yaml

    try:
        document, _ = yaml.read_first(Path(path).read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"{VARIABLE}: cannot read {path}: {error}", hint="the path of a YAML file") from None
    return _File(path, environ).variables(document)


class _File:
    """A configuration file. Its errors name the field."""

    def __init__(self, path: str, environ: Mapping[str, str]) -> None:
        self._path = path
        self._environ = environ
        self._variables: dict[str, str] = {}

    def variables(self, document: Any) -> dict[str, str]:
        root = self._section(document, "the document")
        version = self._text(root.get("file_format"))
        if version.partition(".")[0] != "1":
            raise self._error("file_format", f"is '{version}'", "1.0")
        self._set("OTEL_SDK_DISABLED", root.get("disabled"))
        self._resource(self._section(root.get("resource"), "resource"))
        if root.get("tracer_provider") is None:
            return self._variables | {"OTEL_TRACES_EXPORTER": "none"}
        provider = self._section(root["tracer_provider"], "tracer_provider")
        names = [
            self._processor(processor, f"tracer_provider.processors[{index}]")
            for index, processor in enumerate(provider.get("processors") or [])
        ]
        if len(names) != len(set(names)):
            raise self._error("tracer_provider.processors", "has an exporter twice", "one processor per exporter")
        self._variables["OTEL_TRACES_EXPORTER"] = ",".join(names) or "none"
        if provider.get("sampler") is not None:
            self._sampler(provider["sampler"], "tracer_provider.sampler")
        return self._variables

    def _resource(self, resource: Section) -> None:
        attributes = self._pairs(resource.get("attributes"))
        self._set("OTEL_SERVICE_NAME", attributes.pop("service.name", None))
        self._set_list("OTEL_RESOURCE_ATTRIBUTES", resource.get("attributes_list"), attributes)

    def _processor(self, value: Any, path: str) -> str:
        """Set the variables of a span processor, and return the name of its exporter in OTEL_TRACES_EXPORTER."""
        kind, processor = self._choice(value, path, "batch", "simple")
        path = f"{path}.{kind}"
        for field, variable in _BATCH.items():
            self._set(variable, processor.get(field))
        exporter, settings = self._choice(processor.get("exporter"), f"{path}.exporter", *_EXPORTERS, "console")
        if exporter == "console":
            return exporter
        self._set(f"{_EXPORTER}PROTOCOL", _EXPORTERS[exporter])
        default = "http://localhost:4318/v1/traces" if exporter == "otlp_http" else "http://localhost:4317"
        self._set(f"{_EXPORTER}ENDPOINT", settings.get("endpoint") or default)
        headers = self._pairs(settings.get("headers"))
        self._set_list(f"{_EXPORTER}HEADERS", settings.get("headers_list"), headers)
        self._set(f"{_EXPORTER}COMPRESSION", settings.get("compression"))
        if settings.get("timeout") is not None:
            self._set(
                f"{_EXPORTER}TIMEOUT", self._number(settings["timeout"], f"{path}.exporter.{exporter}.timeout") / 1000
            )
        tls = self._section(settings.get("tls"), f"{path}.exporter.{exporter}.tls")
        for field, variable in _TLS.items():
            self._set(f"{_EXPORTER}{variable}", tls.get(field))
        self._set(f"{_EXPORTER}INSECURE", tls.get("insecure"))
        return "otlp"

    def _sampler(self, value: Any, path: str, prefix: str = "") -> None:
        kinds = ("always_on", "always_off", "trace_id_ratio_based", *(() if prefix else ("parent_based",)))
        kind, settings = self._choice(value, path, *kinds)
        if kind == "parent_based":
            root = settings.get("root", {"always_on": None})
            self._sampler(root, f"{path}.parent_based.root", "parentbased_")
            return
        self._set("OTEL_TRACES_SAMPLER", prefix + kind.replace("trace_id_ratio_based", "traceidratio"))
        self._set("OTEL_TRACES_SAMPLER_ARG", settings.get("ratio"))

    def _choice(self, value: Any, path: str, *allowed: str) -> tuple[str, Section]:
        """Return the only key of a section and what it holds."""
        section = self._section(value, path)
        if len(section) != 1 or (kind := next(iter(section))) not in allowed:
            keys = ", ".join(section) or "nothing"
            raise self._error(path, f"has {keys}", f"exactly one of {', '.join(allowed)}")
        return kind, self._section(section[kind], f"{path}.{kind}")

    def _section(self, value: Any, path: str) -> Section:
        if value is not None and not isinstance(value, dict):
            raise self._error(path, f"is {type(value).__name__}", "a mapping")
        return value or {}

    def _pairs(self, entries: Any) -> dict[str, str]:
        return {self._text(entry.get("name")): self._text(entry.get("value")) for entry in entries or []}

    def _set_list(self, variable: str, text: Any, pairs: Mapping[str, str]) -> None:
        parts = [self._text(text), *(f"{name}={quote(value)}" for name, value in pairs.items())]
        self._set(variable, ",".join(filter(None, parts)))

    def _set(self, variable: str, value: Any) -> None:
        if text := self._text(value):
            self._variables[variable] = text

    def _number(self, value: Any, path: str) -> float:
        try:
            return float(self._text(value))
        except ValueError:
            raise self._error(path, f"is '{value}'", "a number") from None

    def _text(self, value: Any) -> str:
        """Return a scalar as the text of a variable, with its references replaced."""
        if value is None:
            return ""
        if isinstance(value, bool):
            return str(value).lower()
        return _REFERENCE.sub(self._referenced, str(value))

    def _referenced(self, match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        if match[1] is None:
            raise self._error(match[0], "is no reference to a variable", "${NAME} or ${NAME:-default}")
        return self._environ.get(match[1]) or match[2] or ""

    def _error(self, path: str, problem: str, expected: str) -> UserError:
        return UserError(f"{VARIABLE}: {self._path}: {path} {problem}", hint=f"expected: {expected}")
