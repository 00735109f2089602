"""The arithmetic of the normalizers: pure functions on tensors, one concept per file."""
