"""Models on disk: GGUF files and Hugging Face directories, read only after everything in them was checked."""
