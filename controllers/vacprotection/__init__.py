"""VolumeAttributesClass protection: a class in deletion stays while a volume or claim uses it."""
