"""How a classifier or detector does on corrupted images: ImageNet-C's corruptions made on the fly, mCE, mPC and rPC."""
