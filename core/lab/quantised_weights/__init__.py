"""A model whose matrices are integers of 8 or 4 bits, run for real beside the one it was made from."""
