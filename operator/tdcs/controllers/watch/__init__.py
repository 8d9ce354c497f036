"""What the operator watches, and which objects have to be looked at when something changes."""
