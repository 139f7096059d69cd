"""Disks that fail, programs that are killed, files that change: the old file or the new one, never a mixture."""
