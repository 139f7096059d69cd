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

/// A program, and how it is wired when it takes the place of some layers.
struct Compiled
{
    Program program;
    std::vector<Layer*> layers;                ///< what it replaces
    std::vector<armnn::IInputSlot*> inputs;    ///< slots of theirs whose data the program reads, in its order
    std::vector<armnn::IInputSlot*> constants; ///< slots of theirs whose tensors it holds, the recipe's among them
    armnn::IOutputSlot* output;                ///< the slot of theirs whose data it computes
    std::vector<std::string> types;            ///< types of the layers that it computes, the one with the output first
    std::string result;                        ///< name of the fused layer in its rule
    int code = 0;                              ///< the rule's code
    std::string name;
};

/// A TensorInfo in the kernels' terms; Unsupported where they have no such type.
Spec SpecOf(const armnn::TensorInfo& info);

/// Whether a StandIn's last input may hold a recipe, by all that IsLayerSupported shows of it: its TensorInfo.
bool MayBeRecipe(const armnn::TensorInfo& info);

/// Compiles a StandIn. Throws Unsupported or fusion_engine::RecipeError with the reason where that is impossible.
Compiled CompileStandIn(Layer& layer);

/// Whether the kernels have such a layer, by what IsLayerSupported shows of it.
bool IsOrdinary(armnn::LayerType type, const armnn::BaseDescriptor& descriptor);

/// Compiles the layers of a group, or one layer. Throws Unsupported where that is impossible.
Compiled CompileLayers(const std::vector<Layer*>& layers);

} // namespace example
