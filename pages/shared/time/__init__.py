"""Page 4, Where the time goes: its panels, each shown by a function `show`."""
