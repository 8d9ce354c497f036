"""The local cluster itself: what the other end-to-end tests stand on."""
