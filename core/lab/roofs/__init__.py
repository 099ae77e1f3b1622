"""What this machine can do at most: bandwidths and peaks, each measured in a process of its own, and kept."""
