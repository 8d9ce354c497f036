"""Who may use a source, with which keys, and the volume by which pods do."""
