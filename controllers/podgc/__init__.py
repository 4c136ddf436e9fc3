"""Pod garbage collector: deletes Pods that no kubelet will finish, and terminated Pods above a threshold."""
