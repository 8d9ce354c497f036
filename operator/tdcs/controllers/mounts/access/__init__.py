"""Whether a Dataset may use its source, looked at again for as long as it does."""
