"""Ephemeral volume controller: the PersistentVolumeClaims of generic ephemeral volumes."""
