"""Set-up of this repository: the environment, the model wheel, the checks. Standard library only."""
