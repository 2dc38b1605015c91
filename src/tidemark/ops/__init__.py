"""What operators see and do: health, metrics, the events themselves. No business logic."""
