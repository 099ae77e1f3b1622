"""What the pages share: words, models, the visitor's run, and the parts a page is put together from."""
