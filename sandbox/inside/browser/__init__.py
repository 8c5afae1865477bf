"""The browser of a sandbox: a server that runs in the toolbox's Python, beside the program inside."""
