"""Validation of kinds of the API group apps."""
