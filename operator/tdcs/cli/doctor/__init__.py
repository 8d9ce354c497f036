"""`tdcs doctor`: what a user, a namespace and a cluster lack for TDCS."""
