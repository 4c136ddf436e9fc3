"""Own writes that the caches do not show yet, and writes of statuses.

Part of `kubeloop.controllers.runtime`, which states what it may import.

    expectations.py    creations and deletions that were requested and are not observed yet
    consistency.py     newest versions written, compared with those of the caches
    status_delay.py    status writes that own pending writes are about to make obsolete
    object_patch.py    patches of an object that was read before
    status_write.py    write of a status, with one retry
"""
