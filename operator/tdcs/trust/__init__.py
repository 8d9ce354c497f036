"""Who a process is, and what it may call: certificates by role, TLS, and the table of rights."""
