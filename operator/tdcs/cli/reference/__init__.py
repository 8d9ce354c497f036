"""The commands that write what others read of this version: its CRDs and the references of the documentation."""
