"""Fusions whose result is an ordinary Arm NN layer, one file a family."""
