"""Native views: one folder tree per version of a dataset. In it, each file with its block on this node is a hard link
to that block.
"""
