"""Long ListOps of the Long Range Arena (DTN paper, Table 4): data, and encoders with any normalizer."""
