// Tensors as the backend's kernels see them: a description, and values as floats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace example
{

enum class Type
{
    Float32,
    QAsymmU8,
    QAsymmS8,
    QSymmS8,
    Signed32
};

/// Shape, type and quantization of a tensor. `axis` is the quantized axis where there are several scales, else -1.
struct Spec
{
    Type type = Type::Float32;
    std::vector<uint32_t> shape;
    std::vector<float> scales;
    int32_t offset = 0;
    int axis = -1;

    size_t Elements() const;
    size_t Bytes() const;
    std::string Text() const;
};

using Floats = std::vector<float>;

/// Values of a tensor as floats, (q - offset) * scale where it is quantized.
Floats Decode(const Spec& spec, const void* data);

/// Writes floats as a tensor of this description: rounded half away from zero and saturated where it is quantized.
void Encode(const Spec& spec, const Floats& values, void* data);

/// What Encode followed by Decode makes of the values: the rounding of a tensor between two layers.
Floats Rounded(const Spec& spec, const Floats& values);

} // namespace example
