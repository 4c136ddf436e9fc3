"""Job controller: runs Pods until the required number has succeeded. Imports controllers.runtime, informers, kube."""
