"""DTN on a CPU in C++: `kernel` calls it, `graph_break` under `torch.compile`; `build` compiles it."""
