"""The cache manager: who asks for which data, and what of the cache each dataset is granted for it."""
