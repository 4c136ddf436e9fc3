"""Selectors: of labels and fields, of nodes, in affinity terms of pods, and of devices by CEL."""
