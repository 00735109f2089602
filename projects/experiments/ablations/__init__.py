"""Variants of DTN and of the ViT that the ablations of both papers compare. Configs name them by their Python path."""

from experiments.ablations.dtn import AblatedDTN
from experiments.ablations.vit import AblatedViT

__all__ = ['AblatedDTN', 'AblatedViT']
