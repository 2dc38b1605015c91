"""How fast Live is, and what it costs to watch."""
