"""The versions of datasets that pods may read here: registered by the node plugin, opened, shown as a tree."""
