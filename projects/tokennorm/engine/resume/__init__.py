"""Exact resumption of an interrupted training run: checkpoints, random numbers, and the place in the data."""
