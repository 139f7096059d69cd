// Stands in for a header that armnn/backends/IBackendInternal.hpp asks for and that Debian's libarmnn-dev 23.08 leaves
// out: the tensors of one workload in an asynchronous run, which this backend has none of.
#pragma once

#include <vector>

namespace armnn
{
class ITensorHandle;

namespace experimental
{

struct WorkingMemDescriptor
{
    std::vector<ITensorHandle*> m_Inputs;
    std::vector<ITensorHandle*> m_Outputs;
};

} // namespace experimental
} // namespace armnn
