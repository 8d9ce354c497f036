"""Native views: one folder tree per version of a dataset, in which the files whose block lies on this node
are hard links to the cached blocks.
"""
