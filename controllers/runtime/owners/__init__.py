"""Owners of objects: references, the owners to enqueue, adoption and release.

Part of `kubeloop.controllers.runtime`, which states what it may import.

    owner_references.py    controller references, and the index of the objects of an owner
    owner_queue.py         owners that a changed object enqueues
    adoption.py            objects that an owner adopts and releases
"""
