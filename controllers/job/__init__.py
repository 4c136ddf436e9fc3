"""Job controller: runs Pods until the required number has succeeded."""
