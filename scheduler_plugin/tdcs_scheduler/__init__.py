"""The kube-scheduler extender: ranks nodes by the bytes of a pod's datasets that they hold."""
