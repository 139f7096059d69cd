"""Fuse the layers of Arm NN networks, offline and by rule."""
