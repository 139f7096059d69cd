#include "tensor.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

namespace example
{
namespace
{

// Quantized values: the scale of element i is that of its place along the axis.
template <typename T>
Floats Dequantized(const Spec& spec, const T* data)
{
    size_t stride = 1;
    for (size_t d = spec.axis < 0 ? spec.shape.size() : size_t(spec.axis) + 1; d < spec.shape.size(); ++d)
        stride *= spec.shape[d];
    Floats values(spec.Elements());
    for (size_t i = 0; i < values.size(); ++i)
    {
        const float scale = spec.scales.size() > 1 ? spec.scales[i / stride % spec.scales.size()] : spec.scales[0];
        values[i] = float(int32_t(data[i]) - spec.offset) * scale;
    }
    return values;
}

template <typename T>
void Quantized(const Spec& spec, const Floats& values, T* data)
{
    const float lowest = std::numeric_limits<T>::lowest(), highest = std::numeric_limits<T>::max();
    for (size_t i = 0; i < values.size(); ++i)
    {
        const float q = float(spec.offset) + std::round(values[i] / spec.scales[0]);
        data[i] = T(std::min(std::max(q, lowest), highest));
    }
}

} // namespace

size_t Spec::Elements() const
{
    size_t n = 1;
    for (uint32_t d : shape) n *= d;
    return n;
}

size_t Spec::Bytes() const
{
    return Elements() * (type == Type::Float32 || type == Type::Signed32 ? 4 : 1);
}

std::string Spec::Text() const
{
    static const char* const names[] = {"Float32", "QAsymmU8", "QAsymmS8", "QSymmS8", "Signed32"};
    std::string text = std::string(names[int(type)]) + " [";
    for (size_t i = 0; i < shape.size(); ++i) text += (i ? "," : "") + std::to_string(shape[i]);
    return text + "]";
}

Floats Decode(const Spec& spec, const void* data)
{
    const size_t n = spec.Elements();
    switch (spec.type)
    {
        case Type::Float32:
        {
            Floats values(n);
            if (n) std::memcpy(values.data(), data, n * sizeof(float));
            return values;
        }
        case Type::QAsymmU8:
            return Dequantized(spec, static_cast<const uint8_t*>(data));
        case Type::QAsymmS8:
        case Type::QSymmS8:
            return Dequantized(spec, static_cast<const int8_t*>(data));
        case Type::Signed32:
            return Dequantized(spec, static_cast<const int32_t*>(data));
    }
    throw std::logic_error("no such type");
}

void Encode(const Spec& spec, const Floats& values, void* data)
{
    if (values.size() != spec.Elements()) throw std::logic_error("a kernel gave another number of values than its output has");
    switch (spec.type)
    {
        case Type::Float32:
            if (!values.empty()) std::memcpy(data, values.data(), values.size() * sizeof(float));
            return;
        case Type::QAsymmU8:
            return Quantized(spec, values, static_cast<uint8_t*>(data));
        case Type::QAsymmS8:
        case Type::QSymmS8:
            return Quantized(spec, values, static_cast<int8_t*>(data));
        case Type::Signed32:
            break;
    }
    throw std::logic_error("no kernel writes integers");
}

Floats Rounded(const Spec& spec, const Floats& values)
{
    if (spec.type == Type::Float32) return values;
    std::vector<uint8_t> bytes(spec.Bytes());
    Encode(spec, values, bytes.data());
    return Decode(spec, bytes.data());
}

} // namespace example
