"""The tools of page 1: each asks first, measures or keeps something of the live run, and says what came of it."""
