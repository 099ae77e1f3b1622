"""The home page's parts: the run that all who watch share."""
