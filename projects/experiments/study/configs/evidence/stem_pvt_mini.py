"""pvt_mini of the earlier study, on 40 classes, with stems that have patch statistics."""

_base_ = '../real/pvt_mini.py'

custom_imports = dict(imports=['experiments.study.patch_statistics'])
