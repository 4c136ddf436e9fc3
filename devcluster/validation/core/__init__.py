"""Validation of kinds of the core API group, except pods."""
