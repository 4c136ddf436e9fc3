"""Validation of kinds of the API group resource.k8s.io.

Source: pkg/apis/resource/validation/validation.go of Kubernetes v1.36. Not checked: the estimated cost of CEL
expressions, and the label of the namespace that adminAccess requires.
"""
