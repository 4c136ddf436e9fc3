"""Resources of any kind, for controllers of all of them.

Part of `kubeloop.controllers.runtime`, which states what it may import.

    served_resources.py           resources that the API server serves, for lookups
    rediscovery.py                when they are discovered again, for controllers that watch all
    partial_object_metadata.py    resources read as PartialObjectMetadata
"""
