"""Variants of DTN, PVT and ViT that the ablations of both papers compare. Configs name them by their Python path."""

from experiments.ablations.dtn import AblatedDTN, BandedDTN
from experiments.ablations.pvt import AblatedPVT
from experiments.ablations.vit import AblatedViT

__all__ = ['AblatedDTN', 'AblatedPVT', 'AblatedViT', 'BandedDTN']
