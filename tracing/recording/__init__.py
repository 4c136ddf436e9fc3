"""Recorders of pods, reconciles and apply requests, recent traces in memory, and the current span of a task."""
