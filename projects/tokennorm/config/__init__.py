"""Configs: their paths, reading them, walking through them, the size of images, and errors of building their parts."""
