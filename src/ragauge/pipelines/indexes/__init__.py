"""Index types, one file each: `ivf_pq.py` is the type `ivf_pq`, chosen by an index's key `type`.

What types share belongs in `base/`. Building and searching an index of any type, over a database,
belongs to `retrieval`.
"""
