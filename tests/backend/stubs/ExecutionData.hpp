// Stands in for a header that armnn/backends/IBackendInternal.hpp asks for and that Debian's libarmnn-dev 23.08 leaves
// out. Arm NN passes this to backends that run networks asynchronously; this backend only needs it to be complete.
#pragma once

namespace armnn
{
namespace experimental
{

struct ExecutionData
{
    void* m_Data = nullptr;
};

} // namespace experimental
} // namespace armnn
