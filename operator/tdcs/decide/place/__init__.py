"""Where data lies, and which node suits a pod."""
