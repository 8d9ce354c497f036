"""The local cluster of this repository: builds its parts, starts it, loads images into it, removes it."""
