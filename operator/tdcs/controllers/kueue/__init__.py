"""Workloads of Kueue: they start when their data is there, see the AdmissionCheck tdcs.io/data."""
