"""Robustness of classifiers and detectors to the corruptions of ImageNet-C (Hendrycks & Dietterich, 2019)."""

CORRUPTIONS = (
    *('gaussian_noise', 'shot_noise', 'impulse_noise'),
    *('defocus_blur', 'glass_blur', 'motion_blur', 'zoom_blur'),
    *('snow', 'frost', 'fog', 'brightness'),
    *('contrast', 'elastic_transform', 'pixelate', 'jpeg_compression'),
)
SEVERITIES = (1, 2, 3, 4, 5)
ALEXNET = 'alexnet'
