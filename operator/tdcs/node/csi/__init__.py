"""The CSI node plugin that gives pods a dataset as a read-only volume."""
