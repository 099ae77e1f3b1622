"""Plain and tiled attention that really run, and count what they load from slow memory and store to it."""
