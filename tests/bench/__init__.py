"""Measurements of speed and size: `scripts/bench [figure...]`. One file of `figures` holds one figure or one family."""
