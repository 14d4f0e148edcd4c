"""What a run left behind, as types: variants with their records, cells, statistics."""
