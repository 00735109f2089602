"""Analysis, robustness and the study: what reproduces and extends the papers' experiments."""
