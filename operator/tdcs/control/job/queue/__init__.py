"""The queue of all jobs: what is free, and who is admitted."""
