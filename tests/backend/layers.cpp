#include "layers.hpp"

#include <armnn/Descriptors.hpp>
#include <armnn/TypesUtils.hpp>
#include <armnn/backends/TensorHandle.hpp>

#include <algorithm>

namespace example
{
namespace
{

// The Constant layer behind a slot, or null.
Layer* ConstantBehind(armnn::IInputSlot& slot)
{
    armnn::IOutputSlot* from = slot.GetConnection();
    if (!from) throw Unsupported("an input slot that nothing feeds");
    Layer& owner = from->GetOwningIConnectableLayer();
    return owner.GetType() == armnn::LayerType::Constant ? &owner : nullptr;
}

// The tensor of a Constant layer: there whether this backend claimed the layer or not.
const armnn::ConstTensorHandle& TensorOf(Layer& constant)
{
    const auto tensors = constant.GetConstantTensorsByRef();
    if (tensors.size() != 1 || !tensors[0].get()) throw Unsupported(std::string("Constant '") + constant.GetName() + "' holds no tensor");
    return *tensors[0].get();
}

// A Constant's tensor; depthwise weights of older files, [M,I,H,W], become [1,H,W,I*M].
Constant ConstantOf(Layer& constant, const std::string& layout)
{
    const armnn::ConstTensorHandle& tensor = TensorOf(constant);
    const armnn::TensorInfo& info = tensor.GetTensorInfo();
    const uint8_t* bytes = static_cast<const uint8_t*>(tensor.Map(true));
    if (layout != "MIHW") return {SpecOf(info), std::vector<uint8_t>(bytes, bytes + info.GetNumBytes())};

    const armnn::TensorShape& shape = info.GetShape();
    const unsigned m = shape[0], i = shape[1], h = shape[2], w = shape[3];
    armnn::TensorInfo permuted = info;
    permuted.SetShape({1, h, w, i * m});
    // Scales are per output channel whatever axis such a file names.
    if (info.HasMultipleQuantizationScales()) permuted.SetQuantizationDim(3u);
    Constant result{SpecOf(permuted), std::vector<uint8_t>(info.GetNumBytes())};
    const size_t size = info.GetNumElements() ? info.GetNumBytes() / info.GetNumElements() : 0;
    size_t from = 0;
    for (size_t im = 0; im < m; ++im)
        for (size_t ii = 0; ii < i; ++ii)
            for (size_t place = 0; place < size_t(h) * w; ++place, from += size)
                std::copy_n(bytes + from, size, result.bytes.begin() + std::ptrdiff_t((place * i * m + ii * m + im) * size));
    return result;
}

// Of an ElementwiseBinary layer.
bool IsAddition(const armnn::BaseDescriptor& descriptor)
{
    return static_cast<const armnn::ElementwiseBinaryDescriptor&>(descriptor).m_Operation == armnn::BinaryOperation::Add;
}

const char* FunctionName(armnn::ActivationFunction function)
{
    using Function = armnn::ActivationFunction;
    switch (function)
    {
        case Function::ReLu: return "ReLu";
        case Function::BoundedReLu: return "BoundedReLu";
        case Function::LeakyReLu: return "LeakyReLu";
        case Function::Linear: return "Linear";
        case Function::Abs: return "Abs";
        case Function::Square: return "Square";
        case Function::Sigmoid: return "Sigmoid";
        case Function::TanH: return "TanH";
        case Function::SoftReLu: return "SoftReLu";
        case Function::Sqrt: return "Sqrt";
        case Function::Elu: return "Elu";
        case Function::HardSwish: return "HardSwish";
        default: throw Unsupported("the activation with number " + std::to_string(int(function)));
    }
}

template <typename Descriptor>
Window WindowOf(const Descriptor& d)
{
    Window window;
    window.padLeft = d.m_PadLeft;
    window.padRight = d.m_PadRight;
    window.padTop = d.m_PadTop;
    window.padBottom = d.m_PadBottom;
    window.strideX = d.m_StrideX;
    window.strideY = d.m_StrideY;
    window.channelsLast = d.m_DataLayout == armnn::DataLayout::NHWC;
    return window;
}

template <typename Descriptor>
Window ConvolutionWindowOf(const Descriptor& d)
{
    Window window = WindowOf(d);
    window.dilationX = d.m_DilationX;
    window.dilationY = d.m_DilationY;
    window.bias = d.m_BiasEnabled;
    return window;
}

std::function<Kernel(const std::vector<Spec>&, const Spec&)> MakerOf(const Layer& layer)
{
    using Specs = std::vector<Spec>;
    const armnn::BaseDescriptor& base = layer.GetParameters();
    switch (layer.GetType())
    {
        case armnn::LayerType::Convolution2d:
            return [w = ConvolutionWindowOf(static_cast<const armnn::Convolution2dDescriptor&>(base))](const Specs& in, const Spec& out)
            { return Convolution(w, in, out); };
        case armnn::LayerType::DepthwiseConvolution2d:
            return [w = ConvolutionWindowOf(static_cast<const armnn::DepthwiseConvolution2dDescriptor&>(base))](const Specs& in, const Spec& out)
            { return Depthwise(w, in, out); };
        case armnn::LayerType::FullyConnected:
        {
            const auto& d = static_cast<const armnn::FullyConnectedDescriptor&>(base);
            return [first = d.m_TransposeWeightMatrix, bias = d.m_BiasEnabled](const Specs& in, const Spec& out)
            { return FullyConnected(first, bias, in, out); };
        }
        case armnn::LayerType::Addition:
            return Addition;
        case armnn::LayerType::ElementwiseBinary:
            if (!IsAddition(base)) throw Unsupported("an elementwise operation that is no addition");
            return Addition;
        case armnn::LayerType::Activation:
        {
            const auto& d = static_cast<const armnn::ActivationDescriptor&>(base);
            return [f = std::string(FunctionName(d.m_Function)), a = d.m_A, b = d.m_B](const Specs& in, const Spec& out)
            { return Activation(f, a, b, in, out); };
        }
        default:
            throw Unsupported(std::string("layers of type ") + armnn::GetLayerTypeAsCString(layer.GetType()));
    }
}

} // namespace

Spec SpecOf(const armnn::TensorInfo& info)
{
    std::vector<uint32_t> shape;
    for (unsigned i = 0; i < info.GetNumDimensions(); ++i) shape.push_back(info.GetShape()[i]);
    const auto axis = info.GetQuantizationDim();
    return SpecOf(armnn::GetDataTypeName(info.GetDataType()), shape, info.GetQuantizationScales(), info.GetQuantizationOffset(),
                  axis.has_value() ? int(axis.value()) : -1);
}

bool MayBeRecipe(const armnn::TensorInfo& info)
{
    return info.GetDataType() == armnn::DataType::QAsymmU8 && info.GetNumDimensions() == 1 && info.GetQuantizationScale() == 1.0f;
}

Compiled CompileStandIn(Layer& layer)
{
    const unsigned slots = layer.GetNumInputSlots();
    Layer* last = slots ? ConstantBehind(layer.GetInputSlot(slots - 1)) : nullptr;
    if (!last || !MayBeRecipe(TensorOf(*last).GetTensorInfo())) throw Unsupported("a StandIn without a recipe");
    const armnn::ConstTensorHandle& bytes = TensorOf(*last);
    const fusion_engine::Recipe recipe = fusion_engine::Recipe::parse(bytes.Map(true), bytes.GetTensorInfo().GetNumBytes());
    recipe.expectSlots(slots, layer.GetNumOutputSlots());
    if (layer.GetNumOutputSlots() != 1) throw Unsupported("a StandIn with several outputs");

    std::vector<armnn::IInputSlot*> inputs, held;
    std::vector<Spec> specs;
    std::vector<Constant> constants;
    for (unsigned i = 0; i < recipe.inputs; ++i)
    {
        inputs.push_back(&layer.GetInputSlot(i));
        specs.push_back(SpecOf(inputs.back()->GetTensorInfo()));
    }
    for (size_t i = 0; i < recipe.constants.size(); ++i)
    {
        held.push_back(&layer.GetInputSlot(unsigned(recipe.slotOfConstant(i))));
        Layer* owner = ConstantBehind(*held.back());
        if (!owner) throw Unsupported("a constant of the recipe that no Constant layer feeds");
        constants.push_back(ConstantOf(*owner, recipe.constants[i].layout));
    }
    held.push_back(&layer.GetInputSlot(slots - 1));

    std::vector<Node> nodes = NodesOf(recipe);
    nodes[0].output = SpecOf(layer.GetOutputSlot(0).GetTensorInfo());
    std::vector<std::string> types;
    for (const auto& replaced : recipe.layers) types.push_back(replaced.type);
    return {Program(specs, constants, nodes), {&layer}, inputs, held, &layer.GetOutputSlot(0), types, recipe.result, recipe.code, {}};
}

bool IsOrdinary(armnn::LayerType type, const armnn::BaseDescriptor& descriptor)
{
    switch (type)
    {
        case armnn::LayerType::Convolution2d:
        case armnn::LayerType::DepthwiseConvolution2d:
        case armnn::LayerType::FullyConnected:
        case armnn::LayerType::Addition:
        case armnn::LayerType::Activation:
            return true;
        case armnn::LayerType::ElementwiseBinary:
            return IsAddition(descriptor);
        default:
            return false;
    }
}

Compiled CompileLayers(const std::vector<Layer*>& layers)
{
    const auto inside = [&](const Layer& layer) { return std::find(layers.begin(), layers.end(), &layer) != layers.end(); };

    // The root, whose output alone leaves the group, comes first.
    std::vector<Layer*> ordered, inner;
    for (Layer* layer : layers)
    {
        const armnn::IOutputSlot& output = layer->GetOutputSlot(0);
        bool leaves = output.GetNumConnections() == 0;
        for (unsigned i = 0; i < output.GetNumConnections(); ++i)
            leaves = leaves || !inside(output.GetConnection(i)->GetOwningIConnectableLayer());
        (leaves ? ordered : inner).push_back(layer);
    }
    if (ordered.size() != 1) throw Unsupported("a group with " + std::to_string(ordered.size()) + " outputs");
    ordered.insert(ordered.end(), inner.begin(), inner.end());

    std::vector<armnn::IInputSlot*> inputs, held;
    std::vector<Spec> specs;
    std::vector<Constant> constants;
    for (Layer* layer : ordered)
        for (unsigned i = 0; i < layer->GetNumInputSlots(); ++i)
        {
            armnn::IInputSlot& slot = layer->GetInputSlot(i);
            if (Layer* owner = ConstantBehind(slot))
            {
                held.push_back(&slot);
                constants.push_back(ConstantOf(*owner, ""));
            }
            else if (!inside(slot.GetConnection()->GetOwningIConnectableLayer()))
            {
                inputs.push_back(&slot);
                specs.push_back(SpecOf(slot.GetTensorInfo()));
            }
        }

    // The same walk again, now that the numbers of the first constant and the first layer are known.
    std::vector<Node> nodes;
    std::vector<std::string> types;
    size_t nextInput = 0, nextConstant = inputs.size();
    const size_t firstLayer = inputs.size() + constants.size();
    for (Layer* layer : ordered)
    {
        Node node{MakerOf(*layer), {}, SpecOf(layer->GetOutputSlot(0).GetTensorInfo())};
        for (unsigned i = 0; i < layer->GetNumInputSlots(); ++i)
        {
            armnn::IInputSlot& slot = layer->GetInputSlot(i);
            const auto source = std::find(ordered.begin(), ordered.end(), &slot.GetConnection()->GetOwningIConnectableLayer());
            node.operands.push_back(ConstantBehind(slot)        ? nextConstant++
                                    : source == ordered.end()   ? nextInput++
                                                                : firstLayer + size_t(source - ordered.begin()));
        }
        nodes.push_back(std::move(node));
        types.push_back(armnn::GetLayerTypeAsCString(layer->GetType()));
    }
    const auto group = GroupOf(ordered[0]->GetName());
    return {Program(specs, constants, nodes), layers, inputs, held, &ordered[0]->GetOutputSlot(0), types, group ? group->result : types[0], 0, {}};
}

} // namespace example
