"""pvt_mini of evidence.py with stems that have patch statistics."""

_base_ = '../evidence/pvt_mini.py'

custom_imports = dict(imports=['experiments.study.patch_statistics'])
