"""The CacheCluster controller: an Alluxio master, a worker on each cache node, FUSE clients, and their state."""
