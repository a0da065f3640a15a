"""`python -m lab`: its options, and what each command does."""
