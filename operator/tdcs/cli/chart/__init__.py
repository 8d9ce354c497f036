"""The commands that the pods of the chart run, which people seldom call."""
