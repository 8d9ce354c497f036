"""The PersistentVolume and the claim through which pods read a Dataset."""
