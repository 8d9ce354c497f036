"""The block service: how agents and readers get blocks from an agent."""
