"""Reading and writing files: records, complete folders, digests, progress."""
