"""Parts of models that are registered for OpenMMLab: necks, detectors, data preprocessors, optimizers."""
