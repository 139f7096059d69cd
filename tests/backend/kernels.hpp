// The arithmetic of the backend: Arm NN's layers on floats, in the order in which Arm NN's reference backend adds up.
//
// A kernel is made once, when a network is compiled: it checks the shapes it is given, throws Unsupported where it
// cannot compute a layer, and keeps what it needs. It then turns the values of its inputs into those of its output.
#pragma once

#include "tensor.hpp"

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace example
{

/// A layer, or a variant of one, that this backend does not compute; the text says what of it.
struct Unsupported : std::runtime_error
{
    using std::runtime_error::runtime_error;
};

using Kernel = std::function<Floats(const std::vector<const Floats*>&)>;

/// Convolution2d and DepthwiseConvolution2d. Inputs: data, weights, and the bias where there is one.
struct Window
{
    uint32_t padLeft = 0, padRight = 0, padTop = 0, padBottom = 0;
    uint32_t strideX = 1, strideY = 1;
    uint32_t dilationX = 1, dilationY = 1;
    bool channelsLast = true;
    bool bias = false;
};

/// Convolution2d; weights are OHWI where channels are last, else OIHW.
Kernel Convolution(const Window& window, const std::vector<Spec>& inputs, const Spec& output);

/// DepthwiseConvolution2d; weights are [1,H,W,O].
Kernel Depthwise(const Window& window, const std::vector<Spec>& inputs, const Spec& output);

/// FullyConnected; weights are [O,I] where `outputsFirst` (transposeWeightsMatrix), else [I,O].
Kernel FullyConnected(bool outputsFirst, bool bias, const std::vector<Spec>& inputs, const Spec& output);

/// Addition of two tensors, broadcast where a dimension is 1.
Kernel Addition(const std::vector<Spec>& inputs, const Spec& output);

/// Activation by Arm NN's name for its function.
Kernel Activation(const std::string& function, float a, float b, const std::vector<Spec>& inputs, const Spec& output);

/// Pad with a constant; `padList` has (before, after) for each dimension.
Kernel Pad(const std::vector<uint32_t>& padList, float value, const std::vector<Spec>& inputs, const Spec& output);

/// Pooling2d by Arm NN's names for its type ("Max", "Average") and padding method ("Exclude", "IgnoreValue").
Kernel Pooling(const std::string& type, const std::string& padding, uint32_t width, uint32_t height,
               const Window& window, const std::vector<Spec>& inputs, const Spec& output);

} // namespace example
