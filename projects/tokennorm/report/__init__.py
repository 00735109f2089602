"""The report: one HTML page about a trained detector, and one that compares two."""
