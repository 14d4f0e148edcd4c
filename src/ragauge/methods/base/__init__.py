"""What methods are made of: answers and evidence, reading, ranking, stored documents, trees,
windows.
"""
