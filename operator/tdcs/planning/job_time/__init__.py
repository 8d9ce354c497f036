"""The model of how long a training job runs with and without the cache. It decides nothing."""
