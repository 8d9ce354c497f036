"""What is known of the data and where it shall lie: manifests, slots, wants, placement. Pure."""
