"""PodGroup protection: a PodGroup in deletion stays while a Pod of it has not terminated."""
