"""The files of the take-over page."""
