"""What every other package may use; it imports none of them."""
