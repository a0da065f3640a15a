"""The verbs: what `fab` and `make` call. Verbs do not import verbs."""
