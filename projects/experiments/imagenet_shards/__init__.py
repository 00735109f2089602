"""ImageNet in WebDataset shards, for mmpretrain's classifiers."""
