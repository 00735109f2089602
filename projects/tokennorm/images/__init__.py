"""Decoding, drawing and padding of images."""
