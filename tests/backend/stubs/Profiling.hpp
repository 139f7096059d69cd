// Stands in for a header that armnn/backends/Workload.hpp includes and that Debian's libarmnn-dev 23.08 leaves out: the
// profiling macros of Arm NN's own workloads.
#pragma once
