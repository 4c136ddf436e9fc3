"""Stages, as KWOK has them: what becomes of pods and nodes, told by a YAML file."""
