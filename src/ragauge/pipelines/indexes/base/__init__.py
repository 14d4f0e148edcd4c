"""Parts of index types: recipes, their lookup by name, and files of faiss."""
