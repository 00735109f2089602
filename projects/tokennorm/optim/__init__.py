"""Learning rate and weight decay of each parameter. It needs torch and mmengine."""

from tokennorm.optim.layer_decay import LayerDecayOptimWrapperConstructor

__all__ = ['LayerDecayOptimWrapperConstructor']
