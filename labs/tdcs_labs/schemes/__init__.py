"""How data reaches the jobs: the schemes that are compared."""
