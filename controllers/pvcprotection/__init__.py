"""Claim protection: a PersistentVolumeClaim in deletion stays while a Pod uses it."""
