"""What a model is, what it learned, and what a run knows."""
