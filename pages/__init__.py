"""The chapters, one a file, and the frame around them."""
