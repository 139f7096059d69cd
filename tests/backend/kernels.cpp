#include "kernels.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace example
{
namespace
{

void Require(bool holds, const std::string& what)
{
    if (!holds) throw Unsupported(what);
}

void RequireInputs(const char* layer, const std::vector<Spec>& inputs, size_t number)
{
    Require(inputs.size() == number, std::string(layer) + " with " + std::to_string(inputs.size()) + " inputs instead of " +
                                         std::to_string(number));
}

// A four-dimensional tensor of pictures in either layout.
struct Pictures
{
    uint32_t n, h, w, c;
    bool channelsLast;

    Pictures(const Spec& spec, bool last, const char* what) : channelsLast(last)
    {
        Require(spec.shape.size() == 4, std::string(what) + " " + spec.Text() + " instead of four dimensions");
        n = spec.shape[0];
        h = spec.shape[last ? 1 : 2];
        w = spec.shape[last ? 2 : 3];
        c = spec.shape[last ? 3 : 1];
    }

    size_t At(size_t in, size_t ih, size_t iw, size_t ic) const
    {
        return channelsLast ? ((in * h + ih) * w + iw) * c + ic : ((in * c + ic) * h + ih) * w + iw;
    }
};

// Rows (or columns) that a window gives: the stored output shape must be what the parameters say.
bool Fits(uint32_t out, uint32_t in, uint32_t before, uint32_t after, uint32_t kernel, uint32_t dilation, uint32_t stride)
{
    if (!stride || !dilation || !kernel) return false;
    const uint64_t reach = uint64_t(dilation) * (kernel - 1) + 1, size = uint64_t(in) + before + after;
    return size >= reach && out == (size - reach) / stride + 1;
}

using WeightAt = std::function<size_t(size_t output, size_t input, size_t y, size_t x)>;

// Both convolutions: each output channel adds up over input channels, then rows, then columns, and last the bias.
// `inputOf(o, i)` is the input channel behind place i of the `depth` places of output channel o.
Kernel Convolved(const Window& window, Pictures in, Pictures out, uint32_t kernelHeight, uint32_t kernelWidth, uint32_t depth,
                 std::function<size_t(size_t, size_t)> inputOf, WeightAt weightAt)
{
    Require(in.n == out.n, "a convolution that changes the number of pictures");
    Require(Fits(out.h, in.h, window.padTop, window.padBottom, kernelHeight, window.dilationY, window.strideY) &&
                Fits(out.w, in.w, window.padLeft, window.padRight, kernelWidth, window.dilationX, window.strideX),
            "a convolution whose output shape does not follow from its input shape");
    return [=](const std::vector<const Floats*>& values)
    {
        const Floats& data = *values[0];
        const Floats& weights = *values[1];
        const Floats* bias = window.bias ? values[2] : nullptr;
        Floats result(size_t(out.n) * out.h * out.w * out.c);
        for (size_t o = 0; o < out.c; ++o)
        {
            // The channel's weights in the order in which they are used.
            Floats filter;
            std::vector<size_t> channels;
            for (size_t i = 0; i < depth; ++i)
            {
                channels.push_back(inputOf(o, i));
                for (size_t y = 0; y < kernelHeight; ++y)
                    for (size_t x = 0; x < kernelWidth; ++x) filter.push_back(weights[weightAt(o, i, y, x)]);
            }
            for (size_t n = 0; n < out.n; ++n)
                for (size_t oh = 0; oh < out.h; ++oh)
                    for (size_t ow = 0; ow < out.w; ++ow)
                    {
                        float sum = 0.0f;
                        const float* weight = filter.data();
                        for (size_t channel : channels)
                            for (size_t y = 0; y < kernelHeight; ++y)
                                for (size_t x = 0; x < kernelWidth; ++x, ++weight)
                                {
                                    // Places in the padding wrap round to large numbers.
                                    const size_t ih = oh * window.strideY + y * window.dilationY - window.padTop;
                                    const size_t iw = ow * window.strideX + x * window.dilationX - window.padLeft;
                                    const bool inside = ih < in.h && iw < in.w;
                                    sum += *weight * (inside ? data[in.At(n, ih, iw, channel)] : 0.0f);
                                }
                        if (bias) sum += (*bias)[o];
                        result[out.At(n, oh, ow, o)] = sum;
                    }
        }
        return result;
    };
}

void RequireBias(const Spec& bias, size_t channels)
{
    Require(bias.Elements() == channels, "a bias " + bias.Text() + " of " + std::to_string(channels) + " channels");
}

} // namespace

Kernel Convolution(const Window& window, const std::vector<Spec>& inputs, const Spec& output)
{
    RequireInputs("Convolution2d", inputs, window.bias ? 3 : 2);
    const bool last = window.channelsLast;
    const Pictures in(inputs[0], last, "a convolution's input"), out(output, last, "a convolution's output");
    const Pictures weights(inputs[1], last, "a convolution's weights"); // n: output channels, c: input channels
    Require(weights.n == out.c && weights.c == in.c, "weights " + inputs[1].Text() + " between " + inputs[0].Text() + " and " + output.Text());
    if (window.bias) RequireBias(inputs[2], out.c);
    return Convolved(
        window, in, out, weights.h, weights.w, in.c, [](size_t, size_t i) { return i; },
        [weights](size_t o, size_t i, size_t y, size_t x) { return weights.At(o, y, x, i); });
}

Kernel Depthwise(const Window& window, const std::vector<Spec>& inputs, const Spec& output)
{
    RequireInputs("DepthwiseConvolution2d", inputs, window.bias ? 3 : 2);
    const Pictures in(inputs[0], window.channelsLast, "a convolution's input");
    const Pictures out(output, window.channelsLast, "a convolution's output");
    const Pictures weights(inputs[1], true, "depthwise weights"); // n: 1, c: output channels
    const uint32_t multiplier = in.c ? out.c / in.c : 0;
    Require(multiplier && multiplier * in.c == out.c && weights.n == 1 && weights.c == out.c,
            "depthwise weights " + inputs[1].Text() + " between " + inputs[0].Text() + " and " + output.Text());
    if (window.bias) RequireBias(inputs[2], out.c);
    return Convolved(
        window, in, out, weights.h, weights.w, 1, [multiplier](size_t o, size_t) { return o / multiplier; },
        [weights](size_t o, size_t, size_t y, size_t x) { return weights.At(0, y, x, o); });
}

Kernel FullyConnected(bool outputsFirst, bool bias, const std::vector<Spec>& inputs, const Spec& output)
{
    RequireInputs("FullyConnected", inputs, bias ? 3 : 2);
    const std::vector<uint32_t>& weights = inputs[1].shape;
    Require(weights.size() == 2, "weights " + inputs[1].Text() + " instead of two dimensions");
    const size_t places = outputsFirst ? weights[0] : weights[1], depth = outputsFirst ? weights[1] : weights[0];
    Require(depth && places && inputs[0].Elements() % depth == 0, "weights " + inputs[1].Text() + " on " + inputs[0].Text());
    const size_t rows = inputs[0].Elements() / depth;
    Require(output.Elements() == rows * places, "weights " + inputs[1].Text() + " between " + inputs[0].Text() + " and " + output.Text());
    if (bias) RequireBias(inputs[2], places);
    return [=](const std::vector<const Floats*>& values)
    {
        const Floats& data = *values[0];
        const Floats& matrix = *values[1];
        Floats result(rows * places);
        for (size_t r = 0; r < rows; ++r)
            for (size_t o = 0; o < places; ++o)
            {
                float sum = 0.0f;
                for (size_t i = 0; i < depth; ++i)
                    sum += matrix[outputsFirst ? o * depth + i : i * places + o] * data[r * depth + i];
                if (bias) sum += (*values[2])[o];
                result[r * places + o] = sum;
            }
        return result;
    };
}

Kernel Addition(const std::vector<Spec>& inputs, const Spec& output)
{
    RequireInputs("Addition", inputs, 2);
    const size_t rank = output.shape.size();
    // Per input and dimension how far apart neighbours lie: 0 where the dimension is broadcast.
    std::vector<std::vector<size_t>> strides;
    for (const Spec& input : inputs)
    {
        Require(input.shape.size() <= rank, "an addition of " + input.Text() + " into " + output.Text());
        std::vector<size_t> found(rank, 0);
        size_t stride = 1;
        for (size_t d = rank, s = input.shape.size(); s-- > 0;)
        {
            --d;
            Require(input.shape[s] == output.shape[d] || input.shape[s] == 1, "an addition of " + input.Text() + " into " + output.Text());
            found[d] = input.shape[s] == 1 ? 0 : stride;
            stride *= input.shape[s];
        }
        strides.push_back(found);
    }
    return [strides, output](const std::vector<const Floats*>& values)
    {
        Floats result(output.Elements());
        for (size_t at = 0; at < result.size(); ++at)
        {
            size_t rest = at, left = 0, right = 0;
            for (size_t d = output.shape.size(); d-- > 0;)
            {
                const size_t place = rest % output.shape[d];
                rest /= output.shape[d];
                left += place * strides[0][d];
                right += place * strides[1][d];
            }
            result[at] = (*values[0])[left] + (*values[1])[right];
        }
        return result;
    };
}

Kernel Activation(const std::string& function, float a, float b, const std::vector<Spec>& inputs, const Spec& output)
{
    RequireInputs("Activation", inputs, 1);
    Require(inputs[0].Elements() == output.Elements(), "an activation that changes the number of elements");
    std::function<float(float)> f;
    if (function == "ReLu") f = [](float x) { return std::max(0.0f, x); };
    else if (function == "BoundedReLu") f = [a, b](float x) { return std::min(a, std::max(b, x)); };
    else if (function == "LeakyReLu") f = [a](float x) { return x > 0.0f ? x : x * a; };
    else if (function == "Linear") f = [a, b](float x) { return a * x + b; };
    else if (function == "Abs") f = [](float x) { return x < 0.0f ? -x : x; };
    else if (function == "Square") f = [](float x) { return x * x; };
    else if (function == "Sigmoid") f = [](float x) { return 1.0f / (1.0f + std::exp(-x)); };
    else if (function == "TanH") f = [a, b](float x) { return a * std::tanh(b * x); };
    else if (function == "SoftReLu") f = [](float x) { return std::log(1.0f + std::exp(x)); };
    else if (function == "Sqrt") f = [](float x) { return std::sqrt(x); };
    else if (function == "Elu") f = [a](float x) { return x >= 0.0f ? x : a * (std::exp(x) - 1.0f); };
    else if (function == "HardSwish") f = [](float x) { return x * std::min(std::max(x + 3.0f, 0.0f), 6.0f) / 6.0f; };
    else throw Unsupported("the activation " + function);
    return [f](const std::vector<const Floats*>& values)
    {
        Floats result = *values[0];
        for (float& x : result) x = f(x);
        return result;
    };
}

Kernel Pad(const std::vector<uint32_t>& padList, float value, const std::vector<Spec>& inputs, const Spec& output)
{
    RequireInputs("Pad", inputs, 1);
    const std::vector<uint32_t> from = inputs[0].shape, to = output.shape;
    Require(padList.size() == 2 * from.size() && to.size() == from.size(), "a pad list that does not fit " + inputs[0].Text());
    for (size_t d = 0; d < from.size(); ++d)
        Require(uint64_t(from[d]) + padList[2 * d] + padList[2 * d + 1] == to[d], "padding from " + inputs[0].Text() + " to " + output.Text());
    // The value of a quantized pad is a quantized one.
    if (output.type != Type::Float32) value = (value - float(output.offset)) * output.scales[0];
    return [=](const std::vector<const Floats*>& values)
    {
        Floats result(output.Elements(), value);
        const Floats& data = *values[0];
        for (size_t at = 0; at < data.size(); ++at)
        {
            size_t rest = at, place = 0, stride = 1;
            for (size_t d = from.size(); d-- > 0;)
            {
                place += (rest % from[d] + padList[2 * d]) * stride;
                rest /= from[d];
                stride *= to[d];
            }
            result[place] = data[at];
        }
        return result;
    };
}

Kernel Pooling(const std::string& type, const std::string& padding, uint32_t width, uint32_t height, const Window& window,
               const std::vector<Spec>& inputs, const Spec& output)
{
    RequireInputs("Pooling2d", inputs, 1);
    const bool maximum = type == "Max", exclude = padding == "Exclude";
    Require(maximum || type == "Average", "pooling of type " + type);
    Require(exclude || padding == "IgnoreValue", "pooling with padding method " + padding);
    Require(width && height && window.strideX && window.strideY, "pooling without a window or a stride");
    const Pictures in(inputs[0], window.channelsLast, "a pooling's input"), out(output, window.channelsLast, "a pooling's output");
    Require(in.n == out.n && in.c == out.c, "pooling from " + inputs[0].Text() + " to " + output.Text());
    return [=](const std::vector<const Floats*>& values)
    {
        const Floats& data = *values[0];
        Floats result(size_t(out.n) * out.h * out.w * out.c);
        for (int64_t n = 0; n < out.n; ++n)
            for (int64_t c = 0; c < out.c; ++c)
                for (int64_t oh = 0; oh < out.h; ++oh)
                    for (int64_t ow = 0; ow < out.w; ++ow)
                    {
                        // The window ends with the padding at the latest; the area counts what of it is padding.
                        int64_t top = oh * window.strideY - int64_t(window.padTop), left = ow * window.strideX - int64_t(window.padLeft);
                        int64_t bottom = std::min<int64_t>(top + height, int64_t(in.h) + window.padBottom);
                        int64_t right = std::min<int64_t>(left + width, int64_t(in.w) + window.padRight);
                        const float whole = float((bottom - top) * (right - left));
                        top = std::max<int64_t>(top, 0);
                        left = std::max<int64_t>(left, 0);
                        bottom = std::min<int64_t>(bottom, in.h);
                        right = std::min<int64_t>(right, in.w);
                        const bool empty = top >= bottom || left >= right;
                        const float area = exclude && !empty ? float((bottom - top) * (right - left)) : whole;
                        float value = maximum && !empty ? std::numeric_limits<float>::lowest() : 0.0f;
                        for (int64_t h = top; h < bottom; ++h)
                            for (int64_t w = left; w < right; ++w)
                            {
                                const float x = data[in.At(n, h, w, c)];
                                value = maximum ? std::max(value, x) : value + x;
                            }
                        result[out.At(n, oh, ow, c)] = maximum ? value : value / area;
                    }
        return result;
    };
}

} // namespace example
