"""Building blocks of methods: answers and evidence, reading, ranking, stored documents, trees,
windows.
"""
