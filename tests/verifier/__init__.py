"""FlatBuffers' own C++ Verifier as a judge of the decoder."""
