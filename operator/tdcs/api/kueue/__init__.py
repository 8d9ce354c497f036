"""What TDCS adds to the API of Kueue."""
