"""The run's configuration: flags, recipes, scaling. Free of torch."""
