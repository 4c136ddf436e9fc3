"""Volume protection: a PersistentVolume in deletion stays while it is bound."""
