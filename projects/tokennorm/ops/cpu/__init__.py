"""DTN on a CPU in C++: `kernel` calls it, `build` compiles it, `operator` is its form for `torch.compile`."""
