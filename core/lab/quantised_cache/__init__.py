"""A KV cache of integers of 8 or 4 bits, read by real decoding beside the ordinary one."""
