"""What data sets are made of: examples, arrangements, Wikipedia's text."""
