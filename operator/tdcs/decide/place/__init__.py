"""Which nodes hold the data, and which node suits a pod."""
