#include "program.hpp"

#include <algorithm>
#include <utility>

namespace example
{
namespace
{

using fusion_engine::LayerDescription;
using fusion_engine::Recipe;
using fusion_engine::Source;

Window WindowOf(const LayerDescription& layer)
{
    Window window;
    window.padLeft = layer.unsigned32("padLeft");
    window.padRight = layer.unsigned32("padRight");
    window.padTop = layer.unsigned32("padTop");
    window.padBottom = layer.unsigned32("padBottom");
    window.strideX = layer.unsigned32("strideX");
    window.strideY = layer.unsigned32("strideY");
    window.channelsLast = layer.string("dataLayout") == "NHWC";
    return window;
}

Window ConvolutionWindowOf(const LayerDescription& layer)
{
    Window window = WindowOf(layer);
    window.dilationX = layer.unsigned32("dilationX");
    window.dilationY = layer.unsigned32("dilationY");
    window.bias = layer.boolean("biasEnabled");
    return window;
}

bool HasWeights(const LayerDescription& layer)
{
    return layer.type == "Convolution2d" || layer.type == "DepthwiseConvolution2d" || layer.type == "FullyConnected";
}

// Reads a layer's parameters; the shapes come later.
std::function<Kernel(const std::vector<Spec>&, const Spec&)> MakerOf(const LayerDescription& layer)
{
    using Specs = std::vector<Spec>;
    if (layer.type == "Convolution2d")
        return [w = ConvolutionWindowOf(layer)](const Specs& in, const Spec& out) { return Convolution(w, in, out); };
    if (layer.type == "DepthwiseConvolution2d")
        return [w = ConvolutionWindowOf(layer)](const Specs& in, const Spec& out) { return Depthwise(w, in, out); };
    if (layer.type == "FullyConnected")
        return [first = layer.boolean("transposeWeightsMatrix"), bias = layer.boolean("biasEnabled")](
                   const Specs& in, const Spec& out) { return FullyConnected(first, bias, in, out); };
    if (layer.type == "Addition" || (layer.type == "ElementwiseBinary" && layer.string("operation") == "Add")) return Addition;
    if (layer.type == "Activation")
        return [f = layer.string("activationFunction"), a = layer.number("a"), b = layer.number("b")](
                   const Specs& in, const Spec& out) { return Activation(f, a, b, in, out); };
    if (layer.type == "Pad")
    {
        if (layer.string("paddingMode") != "Constant") throw Unsupported("padding of mode " + layer.string("paddingMode"));
        std::vector<uint32_t> padList;
        for (const fusion_engine::Json& pad : layer.array("padList")) padList.push_back(pad.unsigned32());
        return [padList, value = layer.number("padValue")](const Specs& in, const Spec& out) { return Pad(padList, value, in, out); };
    }
    if (layer.type == "Pooling2d")
        return [type = layer.string("poolType"), padding = layer.string("paddingMethod"), width = layer.unsigned32("poolWidth"),
                height = layer.unsigned32("poolHeight"), w = WindowOf(layer)](const Specs& in, const Spec& out)
        { return Pooling(type, padding, width, height, w, in, out); };
    throw Unsupported("layers of type " + layer.type);
}

} // namespace

Spec SpecOf(const std::string& dataType, std::vector<uint32_t> shape, std::vector<float> scales, int32_t offset, int axis)
{
    static const std::pair<const char*, Type> types[] = {
        {"Float32", Type::Float32}, {"QAsymmU8", Type::QAsymmU8}, {"QAsymmS8", Type::QAsymmS8},
        {"QSymmS8", Type::QSymmS8}, {"Signed32", Type::Signed32}};
    for (const auto& [name, type] : types)
    {
        if (dataType != name) continue;
        Spec spec{type, std::move(shape), std::move(scales), offset, axis};
        if (spec.scales.size() > 1)
        {
            if (axis < 0 || size_t(axis) >= spec.shape.size() || spec.scales.size() != spec.shape[size_t(axis)])
                throw Unsupported("a tensor " + spec.Text() + " whose scales fit none of its axes");
        }
        else if (spec.scales.empty() || spec.scales[0] == 0.0f)
        {
            if (type != Type::Float32 && type != Type::Signed32) throw Unsupported("a quantized tensor " + spec.Text() + " without a scale");
            spec.scales = {1.0f};
        }
        return spec;
    }
    throw Unsupported("tensors of type " + dataType);
}

Spec SpecOf(const fusion_engine::TensorDescription& info)
{
    if (!info.given) throw Unsupported("a tensor without a TensorInfo");
    return SpecOf(info.dataType, info.shape, info.scales, info.offset, int(info.quantizationDim));
}

std::vector<Node> NodesOf(const Recipe& recipe)
{
    const size_t firstConstant = recipe.inputs, firstLayer = firstConstant + recipe.constants.size();
    std::vector<Node> nodes;
    for (size_t i = 0; i < recipe.layers.size(); ++i)
    {
        const LayerDescription& layer = recipe.layers[i];
        if (layer.outputs.size() != 1) throw Unsupported(layer.type + " with several outputs");
        Node node{MakerOf(layer), {}, SpecOf(layer.outputs[0])};
        for (const Source& source : layer.inputs)
        {
            const size_t first = source.kind == Source::Kind::Layer      ? firstLayer
                                 : source.kind == Source::Kind::Constant ? firstConstant
                                                                         : 0;
            node.operands.push_back(first + source.index);
        }
        // Member tensors follow the data, as Constants do on the slots of a newer file.
        if (HasWeights(layer) && node.operands.size() == 1)
            for (const char* field : {"weights", "biases"})
                if (const auto constant = recipe.findConstant(i, field)) node.operands.push_back(firstConstant + *constant);
        nodes.push_back(std::move(node));
    }
    return nodes;
}

Program::Program(std::vector<Spec> inputs, const std::vector<Constant>& constants, const std::vector<Node>& layers)
    : m_Inputs(std::move(inputs))
{
    std::vector<Spec> specs = m_Inputs; // by number of value
    for (const Constant& constant : constants)
    {
        specs.push_back(constant.spec);
        m_Constants.push_back(Decode(constant.spec, constant.bytes.data()));
    }
    m_Result = specs.size();
    for (const Node& node : layers) specs.push_back(node.output);
    m_Values = specs.size();

    // Layers whose operands are all known come next, until none is left.
    std::vector<bool> known(m_Values, false);
    std::fill(known.begin(), known.begin() + std::ptrdiff_t(m_Result), true);
    while (m_Steps.size() < layers.size())
    {
        const size_t before = m_Steps.size();
        for (size_t i = layers.size(); i-- > 0;)
        {
            const std::vector<size_t>& operands = layers[i].operands;
            const size_t result = m_Result + i;
            if (known[result] || !std::all_of(operands.begin(), operands.end(), [&](size_t value) { return known[value]; })) continue;
            if (specs[result].type == Type::Signed32) throw Unsupported("a layer that computes integers");
            std::vector<Spec> described;
            for (size_t value : operands) described.push_back(specs[value]);
            m_Steps.push_back({layers[i].make(described, specs[result]), operands, result, specs[result]});
            known[result] = true;
        }
        if (m_Steps.size() == before) throw Unsupported("layers that feed each other");
    }
}

void Program::Run(const std::vector<const void*>& inputs, void* output) const
{
    std::vector<Floats> computed(m_Values);
    std::vector<const Floats*> values(m_Values, nullptr);
    for (size_t i = 0; i < m_Inputs.size(); ++i)
    {
        computed[i] = Decode(m_Inputs[i], inputs[i]);
        values[i] = &computed[i];
    }
    for (size_t i = 0; i < m_Constants.size(); ++i) values[m_Inputs.size() + i] = &m_Constants[i];
    for (const Step& step : m_Steps)
    {
        std::vector<const Floats*> operands;
        for (size_t value : step.operands) operands.push_back(values[value]);
        computed[step.result] = Rounded(step.spec, step.kernel(operands));
        values[step.result] = &computed[step.result];
    }
    const auto result = std::find_if(m_Steps.begin(), m_Steps.end(), [this](const Step& step) { return step.result == m_Result; });
    Encode(result->spec, computed[m_Result], output);
}

} // namespace example
