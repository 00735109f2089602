"""What a trained backbone does inside: the measures and pictures of the DTN paper's figures."""
