"""KWOK stages: behaviour of pods, nodes and other objects, defined in YAML files."""
