"""Texts of the Warning headers that a write returns."""
