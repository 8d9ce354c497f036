"""What lies on the disk, by looking."""
