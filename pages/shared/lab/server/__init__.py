"""Beyond one machine: a server's sweep on page 5, from the command that makes it to the report."""
