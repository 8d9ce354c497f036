"""TrainingJobs in a queue of Kueue: one Workload stands for all roles of a job."""
