"""Which learning rate and weight decay each parameter gets. It needs torch and mmengine."""

from tokennorm.optim.layer_decay import LayerDecayOptimWrapperConstructor

__all__ = ['LayerDecayOptimWrapperConstructor']
