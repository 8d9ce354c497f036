"""What runs next to the S3 gateway in the store's pod: datasets made from a seed, the link's rate, counters."""
