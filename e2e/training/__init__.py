"""Jobs that train on datasets: where they run, how they share, which faults and links they live with."""
