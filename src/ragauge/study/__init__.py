"""A study of one's own documents and questions: what is read, what is retrieved, and the experiment that it becomes."""
