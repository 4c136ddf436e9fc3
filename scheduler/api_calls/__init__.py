"""API calls about pods that scheduling does not wait for.

    api_dispatcher.py      bindings and status patches, at most one call per pod
    status_patches.py      merged patches of pod status
    background_calls.py    metrics of these calls

Source: backend/api_dispatcher, backend/api_cache and framework/api_calls of v1.36.
"""
