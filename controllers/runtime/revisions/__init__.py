"""Revisions of a template: ControllerRevisions, and hashes in names and labels.

Part of `kubeloop.controllers.runtime`, which states what it may import.

    controller_history.py    ControllerRevisions
    pod_template_hash.py     equality and hash of Pod templates
    name_hash.py             hashes in names and labels
"""
