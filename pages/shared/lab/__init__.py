"""Page 5, Lab: what of it is not a panel's own, and the report that a learner hands in."""
