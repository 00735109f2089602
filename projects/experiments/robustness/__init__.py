"""Evaluation on corrupted images: ImageNet-C's corruptions computed on the fly, mCE, mPC and rPC."""
