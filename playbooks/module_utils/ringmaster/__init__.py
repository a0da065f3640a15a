"""Code that the modules in `library/` share. Modules are run on the nodes."""
