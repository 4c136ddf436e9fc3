"""Kinds of the group admissionregistration.k8s.io."""
