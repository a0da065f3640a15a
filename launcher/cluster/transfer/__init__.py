"""What travels between the operator's machine and the nodes: code and data there, results back."""
