// Layers of Arm NN's graph, as a backend sees them in OptimizeSubgraphView, in the kernels' terms.
#pragma once

#include "group.hpp"
#include "program.hpp"

#include <armnn/INetwork.hpp>

#include <string>
#include <vector>

namespace example
{

using Layer = armnn::IConnectableLayer;

/// A program and how it is wired: what takes the place of some layers.
struct Compiled
{
    Program program;
    std::vector<armnn::IInputSlot*> inputs;   ///< slots whose data the program reads, in its order
    std::vector<Layer*> constants;            ///< Constant layers whose tensors the program holds
    armnn::IOutputSlot* output;               ///< the slot whose data it computes
    std::vector<std::string> layers;          ///< types of the layers that it computes, the last one first
    std::string result;                       ///< name of the fused layer in its rule
    int code = 0;                             ///< the rule's code
};

/// A TensorInfo in the kernels' terms; Unsupported where they have no such type.
Spec SpecOf(const armnn::TensorInfo& info);

/// Whether a StandIn's last input may hold a recipe, by all that IsLayerSupported shows of it: its TensorInfo.
bool MayBeRecipe(const armnn::TensorInfo& info);

/// Compiles a StandIn. Throws Unsupported or fusion_engine::RecipeError with the reason where that is impossible.
Compiled CompileStandIn(Layer& layer);

/// Whether the kernels have a layer of this type, as far as the type tells.
bool IsOrdinary(armnn::LayerType type);

/// Compiles layers of Arm NN that one group holds. Throws Unsupported where that is impossible.
Compiled CompileGroup(const std::vector<Layer*>& layers);

} // namespace example
