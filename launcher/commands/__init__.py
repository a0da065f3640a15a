"""The verbs that `fab` and `make` call, and what they share.

Verbs (train, jobs, image, provision) don't import each other, but for image, which delivers through provision.
"""
