"""Parts of data sets: examples, arrangements, Wikipedia's text."""
