"""Simulated nodes and the pods on them, with KWOK's stages."""
