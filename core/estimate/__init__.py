"""What a model costs, by formula and by exact count. Imports no torch."""
