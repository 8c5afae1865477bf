"""Every `Figure` at the top of a module of this package is measured; a new one is one new file, or a line in one."""
