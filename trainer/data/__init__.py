"""Opens a data set as batches."""
