"""A strict stand-in for Modal on this machine: its control plane and its command router, spoken to by the real SDK.

Commands are real processes, file systems real folders, snapshots real copies. It stands in for no isolation: what runs
in it is kept apart by a jail where one is given, and by nothing where none is.
"""
