"""A Hugging Face config.json as a shape: read field by field, or refused by name."""
