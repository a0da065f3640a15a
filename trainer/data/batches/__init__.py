"""Batches of images in memory: sampling, augmentation, normalization."""
