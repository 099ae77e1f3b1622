"""Page 7's parts: what is asked, what is committed to, what came out, and what is kept of it."""
