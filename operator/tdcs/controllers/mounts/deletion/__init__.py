"""The end of a Dataset and of its mount: claims and who uses them, blocks, and mounts that no Dataset has any more."""
