"""Device taint eviction controller: deletes Pods that do not tolerate the NoExecute taints of their devices."""
