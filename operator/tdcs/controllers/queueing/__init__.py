"""The queue of TrainingJobs: which jobs may have pods now, and what the others wait for."""
