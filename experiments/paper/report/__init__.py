"""From results to words."""
