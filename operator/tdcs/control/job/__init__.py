"""TrainingJobs: their children, their status, and what Kueue says of them."""
