"""Measures how many planted label errors the lists of suspects find."""
