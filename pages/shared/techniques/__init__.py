"""Page 6: techniques by formula in a matrix, and each of them run for real, before and after."""
