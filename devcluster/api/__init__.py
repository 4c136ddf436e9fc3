"""Vocabulary of the API server: served resources, Status errors, requests and responses, request info."""
