"""Reading and writing files: records, folders made whole or not at all, digests, progress."""
