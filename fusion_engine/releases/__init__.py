"""The releases of Arm NN: what each can hold and read, and carrying a network from one to another."""
