"""PersistentVolume expander: claims whose volume an external resizer has to expand."""
