"""Attacks on TDCS as it is installed on the local cluster, with a tenant's rights: each is refused, with the reason."""
