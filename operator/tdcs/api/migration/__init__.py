"""Files of the former version of the API, rewritten for this one."""
