"""What index types are made of."""
