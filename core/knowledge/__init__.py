"""The knowledge base: parses, splits, indexes and searches documents, and answers questions about them."""
