"""Export of finished traces: OTLP over HTTP, or through installed exporters of the OpenTelemetry SDK."""
