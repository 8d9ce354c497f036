"""The AdmissionCheck of Kueue that asks for data."""
