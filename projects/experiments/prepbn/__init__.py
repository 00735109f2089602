"""PRepBN after training: merged into linear layers, and SLAB's published weights."""
