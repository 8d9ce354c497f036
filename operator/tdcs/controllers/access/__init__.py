"""Whether a Dataset may read its source: by rules, by addresses and with which keys."""
