// Stands in for a header that armnn/backends/IBackendInternal.hpp includes and that Debian's libarmnn-dev 23.08 leaves
// out. Nothing that a backend overrides mentions what it declares.
#pragma once
