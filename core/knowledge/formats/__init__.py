"""One reader per family of file formats; they run only in the child process."""
