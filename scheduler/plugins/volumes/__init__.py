"""Plugins of volumes.

    volume_binding.py            VolumeBinding: nodes where the pod's claims are, or can be, bound
    volume_binder.py             choice, reservation and binding of PersistentVolumes
    volume_claims.py             the claims of a pod
    storage_capacity_score.py    score by the free capacity of storage pools
    volume_restrictions.py       VolumeRestrictions: disks and ReadWriteOncePod claims in use
    volume_zone.py               VolumeZone: zones of bound volumes
    node_volume_limits.py        NodeVolumeLimits: attached volumes per CSI driver
    csi_migration.py             in-tree volumes as CSI volumes

Source: plugins/{volumebinding,volumerestrictions,volumezone,nodevolumelimits} of v1.36.
"""
