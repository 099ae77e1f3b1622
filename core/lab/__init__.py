"""What was counted and measured, beside what is estimated."""
