"""Kinds of the group storagemigration.k8s.io."""
