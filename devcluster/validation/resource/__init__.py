"""Validation of kinds of the API group resource.k8s.io.

Source: pkg/apis/resource/validation/validation.go of Kubernetes v1.36. The estimated cost of CEL expressions is not
checked.
"""
