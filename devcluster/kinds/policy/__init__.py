"""Kinds of the group policy."""
