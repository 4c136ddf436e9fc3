"""Malformed and hostile requests from a seed, and what servers under them must not do."""
