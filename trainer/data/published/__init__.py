"""Published data sets: sources, downloads, file formats, tensors."""
