"""The Preload controller: tells how far a directive is. The loading itself is the Dataset controller's."""
