"""The page that shows the simulated platforms side by side, as people see them."""
