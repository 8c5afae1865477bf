"""The program that runs inside every sandbox: standard library only, Python 3.9 or newer."""
