"""The browser of a sandbox: its server runs in the toolbox's Python, next to the program inside."""
