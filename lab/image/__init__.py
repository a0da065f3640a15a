"""The node images: what they are made from, their build, their copies."""
