"""HTTP extenders.

    extender.py        requests to an extender, and what it is interested in
    full_objects.py    complete pods and nodes in these requests

Source: pkg/scheduler/extender.go of v1.36.
"""
