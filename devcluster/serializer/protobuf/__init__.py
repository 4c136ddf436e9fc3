"""Kubernetes' protobuf encoding of objects, lists and watch events."""
