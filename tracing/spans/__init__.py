"""Trace context, spans, and the records of pods and reconciles that spans are built from."""
