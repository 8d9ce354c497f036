"""What of the blocks lies on this node's own disks, and what its agent has found wrong of that."""
