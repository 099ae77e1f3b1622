"""The lab's sweep: decode steps of B sequences together at context n, bytes and seconds, point by point into a file."""
