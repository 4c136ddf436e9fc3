"""Export of finished traces: OTLP over HTTP, or JSON on stdout."""
