"""How a run becomes a file, and a file a run again: `core.engine.saved_run` is the door."""
