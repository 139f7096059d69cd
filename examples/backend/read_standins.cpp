// Shows what is in the opaque layers of a fused .armnn file, without Arm NN: the file by plain FlatBuffers, the recipes by
// standin.hpp.
//
//     examples/backend/build out
//     fusion-engine fuse examples/models/digits.armnn --rules npu --out fused
//     out/read_standins fused/digits.armnn
//
// current_generated.h is what flatc makes of schema/current.fbs. Exit code 0: every StandIn was shown; 1: the file is no
// .armnn file, or cannot be read.

#include "current_generated.h"

#include <fusion_engine/standin.hpp>

#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <sstream>

namespace
{

namespace wire = armnnSerializer;
using fusion_engine::LayerDescription;
using fusion_engine::Recipe;
using fusion_engine::RecipeError;
using fusion_engine::Source;
using fusion_engine::TensorDescription;

/// The layers of a file by their indices, which are not their places in the list.
using Layers = std::map<uint32_t, const wire::AnyLayer*>;

/// A name in quotes; control characters, which could command a terminal, become question marks.
std::string Quoted(std::string name)
{
    for (char& c : name)
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
    return "'" + name + "'";
}

/// What all layers have. A table per layer type holds it: this needs those two types only.
const wire::LayerBase* BaseOf(const wire::AnyLayer& layer)
{
    if (const auto* standIn = layer.layer_as_StandInLayer()) return standIn->base();
    if (const auto* constant = layer.layer_as_ConstantLayer()) return constant->base();
    return nullptr;
}

struct Bytes
{
    const void* data = nullptr;
    size_t size = 0;
};

/// The values of a Constant layer; nothing where it has none.
Bytes BytesOf(const wire::ConstantLayer& constant)
{
    const auto bytes = [](const auto* values) -> Bytes {
        if (!values || !values->data()) return {};
        return {values->data()->data(), values->data()->size() * sizeof(*values->data()->data())};
    };
    const wire::ConstTensor* tensor = constant.input();
    if (!tensor) return {};
    switch (tensor->data_type())
    {
        case wire::ConstTensorData_ByteData: return bytes(tensor->data_as_ByteData());
        case wire::ConstTensorData_ShortData: return bytes(tensor->data_as_ShortData());
        case wire::ConstTensorData_IntData: return bytes(tensor->data_as_IntData());
        case wire::ConstTensorData_LongData: return bytes(tensor->data_as_LongData());
        default: return {};
    }
}

/// The Constant that feeds an input slot; null where something else does.
const wire::ConstantLayer* ConstantOn(const Layers& layers, const wire::LayerBase& base, uint64_t slot)
{
    if (!base.inputSlots() || slot >= base.inputSlots()->size()) return nullptr;
    const wire::Connection* connection = base.inputSlots()->Get(static_cast<uint32_t>(slot))->connection();
    const auto found = connection ? layers.find(connection->sourceLayerIndex()) : layers.end();
    return found == layers.end() ? nullptr : found->second->layer_as_ConstantLayer();
}

std::string Shape(const std::vector<uint32_t>& extents)
{
    std::string shown = "[";
    for (uint32_t extent : extents) shown += (shown.size() > 1 ? "," : "") + std::to_string(extent);
    return shown + "]";
}

std::string Shown(const TensorDescription& tensor)
{
    return tensor.given ? tensor.dataType + " " + Shape(tensor.shape) : std::string("unknown");
}

std::string Shown(const Source& source)
{
    switch (source.kind)
    {
        case Source::Kind::DataInput: return "input " + std::to_string(source.index);
        case Source::Kind::Constant: return "constant " + std::to_string(source.index);
        default: return "layer " + std::to_string(source.index) + " output " + std::to_string(source.slot);
    }
}

/// A parameter that is a number, a text or a truth value; "..." for a list or a table.
std::string Shown(const fusion_engine::Json& value)
{
    using Kind = fusion_engine::Json::Kind;
    std::ostringstream shown;
    switch (value.kind())
    {
        case Kind::Boolean: shown << (value.boolean() ? "true" : "false"); break;
        case Kind::Integer: shown << value.integer(); break;
        case Kind::Number: shown << value.number(); break;
        case Kind::String: shown << value.string(); break;
        default: shown << "..."; break;
    }
    return shown.str();
}

void ShowLayer(size_t number, const LayerDescription& layer)
{
    std::cout << "  layer " << number << ": " << layer.type << " " << Quoted(layer.name);
    for (size_t slot = 0; slot < layer.inputs.size(); ++slot) std::cout << (slot ? ", " : " of ") << Shown(layer.inputs[slot]);
    for (size_t slot = 0; slot < layer.outputs.size(); ++slot) std::cout << (slot ? ", " : " -> ") << Shown(layer.outputs[slot]);
    std::cout << "\n";
    for (size_t index = 0; !layer.params.isNull() && index < layer.params.size(); ++index)
    {
        const std::string name = layer.params.key(index);
        std::cout << "    " << name << " = " << Shown(layer.param(name)) << "\n";
    }
    if (layer.recipe) std::cout << "    made of " << layer.recipe->layers.size() << " layers itself\n";
}

void ShowConstants(const Recipe& recipe, const Layers& layers, const wire::LayerBase& base)
{
    for (size_t number = 0; number < recipe.constants.size(); ++number)
    {
        const auto& constant = recipe.constants[number];
        std::cout << "  constant " << number << ": ";
        if (constant.field.empty()) std::cout << Quoted(constant.name) << " on input " << constant.slot;
        else std::cout << constant.field;
        std::cout << " of layer " << constant.layer << (constant.layout.empty() ? "" : ", " + constant.layout);
        const wire::ConstantLayer* layer = ConstantOn(layers, base, recipe.slotOfConstant(number));
        if (!layer) throw RecipeError("", "constant " + std::to_string(number) + " is not in the file");
        std::cout << ", " << BytesOf(*layer).size << " bytes\n";
    }
}

void ShowStandIn(const Layers& layers, const wire::LayerBase& base)
{
    std::cout << "StandIn " << base.index() << " " << Quoted(base.layerName() ? base.layerName()->str() : "") << ": ";
    const size_t inputs = base.inputSlots() ? base.inputSlots()->size() : 0;
    const size_t outputs = base.outputSlots() ? base.outputSlots()->size() : 0;
    const wire::ConstantLayer* last = inputs ? ConstantOn(layers, base, inputs - 1) : nullptr;
    const Bytes bytes = last ? BytesOf(*last) : Bytes{};
    if (!Recipe::isRecipe(bytes.data, bytes.size))
    {
        std::cout << "no recipe: somebody else's\n";
        return;
    }
    try
    {
        const Recipe recipe = Recipe::parse(bytes.data, bytes.size);
        recipe.expectSlots(inputs, outputs);
        std::cout << recipe.result << ", code " << recipe.code << ", rule " << Quoted(recipe.rule) << ", data inputs "
                  << recipe.inputs << "\n";
        for (size_t number = 0; number < recipe.layers.size(); ++number) ShowLayer(number, recipe.layers[number]);
        ShowConstants(recipe, layers, base);
    }
    catch (const RecipeError& error)
    {
        std::cout << error.what() << "\n";
    }
}

} // namespace

int main(int count, char** arguments)
{
    if (count != 2)
    {
        std::cerr << "usage: read_standins FILE.armnn\n";
        return 2;
    }
    std::ifstream file(arguments[1], std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    // A verifier allows 1,000,000 tables; a network has a few per layer and tensor.
    flatbuffers::Verifier verifier(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), 64, 100'000'000);
    if (!file || bytes.size() < 8 || !verifier.VerifyBuffer<wire::SerializedGraph>(nullptr))
    {
        std::cerr << arguments[1] << ": this is no .armnn file, or it cannot be read\n";
        return 1;
    }
    Layers layers;
    const auto* list = flatbuffers::GetRoot<wire::SerializedGraph>(bytes.data())->layers();
    for (uint32_t place = 0; list && place < list->size(); ++place)
        if (const wire::LayerBase* base = BaseOf(*list->Get(place))) layers[base->index()] = list->Get(place);
    for (const auto& [index, layer] : layers)
        if (layer->layer_as_StandInLayer()) ShowStandIn(layers, *BaseOf(*layer));
    return 0;
}
