"""Subresources with steps of their own: the scale, and binding and eviction of pods."""
