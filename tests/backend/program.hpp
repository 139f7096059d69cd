// What a fused layer is compiled to: the kernels of its layers, in an order in which each finds its inputs.
#pragma once

#include "kernels.hpp"

#include <fusion_engine/standin.hpp>

#include <functional>
#include <string>
#include <vector>

namespace example
{

struct Constant
{
    Spec spec;
    std::vector<uint8_t> bytes;
};

/// A layer to compile. Values are numbered: data inputs, then constants, then layers, each in their order.
struct Node
{
    std::function<Kernel(const std::vector<Spec>& inputs, const Spec& output)> make;
    std::vector<size_t> operands;
    Spec output;
};

class Program
{
public:
    /// Compiles layers, of which the first gives the output. Throws Unsupported where a layer, or a variant of it, is
    /// none of the kernels'.
    Program(std::vector<Spec> inputs, const std::vector<Constant>& constants, const std::vector<Node>& layers);

    /// Runs on tensors of the descriptions that it was compiled with.
    void Run(const std::vector<const void*>& inputs, void* output) const;

private:
    struct Step
    {
        Kernel kernel;
        std::vector<size_t> operands;
        size_t result;
        Spec spec;
    };

    std::vector<Spec> m_Inputs;
    std::vector<Floats> m_Constants;
    std::vector<Step> m_Steps;
    size_t m_Values;
    size_t m_Result;
};

/// The layers of a recipe; depthwise weights are taken to be [1,H,W,O]. Throws Unsupported, or fusion_engine::RecipeError where a parameter is missing.
std::vector<Node> NodesOf(const fusion_engine::Recipe& recipe);

/// A recipe's TensorInfo as a Spec; Unsupported where the kernels have no such type.
Spec SpecOf(const fusion_engine::TensorDescription& info);

/// A Spec from the parts of a TensorInfo; Unsupported where the kernels have no such type.
Spec SpecOf(const std::string& dataType, std::vector<uint32_t> shape, std::vector<float> scales, int32_t offset, int axis);

} // namespace example
