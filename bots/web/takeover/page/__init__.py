"""The HTML, script and style sheet of the take-over page."""
