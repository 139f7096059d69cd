// run [options] MODEL DIR : loads an .armnn file, optimizes it for some backends, runs it once.
//
//     --backend NAME               a backend to ask for each layer, in order of preference (repeatable)
//     --path DIR                   where dynamic backends lie: Arm NN takes one folder
//     --option BACKEND:NAME=VALUE  an option of a backend: true and false are truth values, all else is text (repeatable)
//
// DIR has in_<binding id>.bin, the bytes of each input, and gets out_<binding id>.bin and answer.json:
// {"ok": true, "messages": [..], "outputs": [{"id", "name", "type", "shape"}]}, or {"ok": false, "stage", "error",
// "messages"} where Arm NN does not take or run the network.
#include "json.hpp"

#include <armnn/ArmNN.hpp>
#include <armnn/IStrategy.hpp>
#include <armnn/TypesUtils.hpp>
#include <armnnDeserializer/IDeserializer.hpp>

#include <fstream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace
{

using example::Quoted;
using Bytes = std::vector<uint8_t>;

struct Arguments
{
    std::vector<armnn::BackendId> backends;
    std::string path, model, folder;
    std::vector<armnn::BackendOptions> options;
};

Arguments Parse(int count, char** texts)
{
    Arguments arguments;
    std::vector<std::string> places;
    for (int i = 1; i < count; ++i)
    {
        const std::string text = texts[i];
        if (text.rfind("--", 0) != 0)
        {
            places.push_back(text);
            continue;
        }
        if (i + 1 == count) throw std::invalid_argument(text + " lacks its value");
        const std::string value = texts[++i];
        if (text == "--backend") arguments.backends.emplace_back(value);
        else if (text == "--path") arguments.path = value;
        else if (text == "--option")
        {
            const size_t colon = value.find(':'), equals = value.find('=');
            if (colon == std::string::npos || equals == std::string::npos || equals < colon)
                throw std::invalid_argument("--option " + value + " is not BACKEND:NAME=VALUE");
            const std::string name = value.substr(colon + 1, equals - colon - 1), set = value.substr(equals + 1);
            const bool truth = set == "true" || set == "false";
            const auto option = truth ? armnn::BackendOptions::BackendOption(name, set == "true") : armnn::BackendOptions::BackendOption(name, set);
            arguments.options.push_back(armnn::BackendOptions(value.substr(0, colon), {option}));
        }
        else throw std::invalid_argument("there is no option " + text);
    }
    if (places.size() != 2) throw std::invalid_argument("usage: run [options] MODEL DIR");
    arguments.model = places[0];
    arguments.folder = places[1];
    return arguments;
}

Bytes Read(const std::string& path)
{
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error("cannot read " + path);
    return Bytes(std::istreambuf_iterator<char>(file), {});
}

/// Binding ids and names of inputs and outputs, in the network's order.
struct Bindings : armnn::IStrategy
{
    std::vector<armnn::LayerBindingId> inputs, outputs;
    std::vector<std::string> names;

    void ExecuteStrategy(const armnn::IConnectableLayer* layer, const armnn::BaseDescriptor&, const std::vector<armnn::ConstTensor>&,
                         const char* name, const armnn::LayerBindingId id) override
    {
        if (layer->GetType() == armnn::LayerType::Input) inputs.push_back(id);
        if (layer->GetType() != armnn::LayerType::Output) return;
        outputs.push_back(id);
        names.push_back(name ? name : "");
    }
};

std::string Run(const Arguments& arguments, std::string& stage, std::vector<std::string>& messages)
{
    stage = "deserialize";
    const armnn::INetworkPtr network = armnnDeserializer::IDeserializer::Create()->CreateNetworkFromBinary(Read(arguments.model));
    Bindings bindings;
    network->ExecuteStrategy(bindings);

    stage = "optimize";
    armnn::IRuntime::CreationOptions creation;
    creation.m_DynamicBackendsPath = arguments.path;
    creation.m_BackendOptions = arguments.options;
    const armnn::IRuntimePtr runtime = armnn::IRuntime::Create(creation);
    armnn::IOptimizedNetworkPtr optimized = armnn::Optimize(*network, arguments.backends, runtime->GetDeviceSpec(),
                                                            armnn::OptimizerOptionsOpaque(),
                                                            armnn::Optional<std::vector<std::string>&>(messages));
    if (!optimized) throw std::runtime_error("Optimize gave no network");

    stage = "load";
    armnn::NetworkId id;
    std::string error;
    const armnn::INetworkProperties properties(false, armnn::MemorySource::Undefined, armnn::MemorySource::Undefined);
    if (runtime->LoadNetwork(id, std::move(optimized), error, properties) != armnn::Status::Success) throw std::runtime_error(error);

    stage = "run";
    std::vector<Bytes> data;
    data.reserve(bindings.inputs.size() + bindings.outputs.size());
    armnn::InputTensors inputs;
    armnn::OutputTensors outputs;
    for (armnn::LayerBindingId binding : bindings.inputs)
    {
        armnn::TensorInfo info = runtime->GetInputTensorInfo(id, binding);
        info.SetConstant();
        data.push_back(Read(arguments.folder + "/in_" + std::to_string(binding) + ".bin"));
        if (data.back().size() != info.GetNumBytes()) throw std::runtime_error("input " + std::to_string(binding) + " has another size");
        inputs.emplace_back(binding, armnn::ConstTensor(info, data.back().data()));
    }
    for (armnn::LayerBindingId binding : bindings.outputs)
    {
        const armnn::TensorInfo info = runtime->GetOutputTensorInfo(id, binding);
        data.emplace_back(info.GetNumBytes());
        outputs.emplace_back(binding, armnn::Tensor(info, data.back().data()));
    }
    if (runtime->EnqueueWorkload(id, inputs, outputs) != armnn::Status::Success) throw std::runtime_error("EnqueueWorkload failed");

    stage = "write";
    std::string list;
    for (size_t i = 0; i < outputs.size(); ++i)
    {
        const armnn::TensorInfo& info = outputs[i].second.GetInfo();
        std::string shape;
        for (unsigned d = 0; d < info.GetNumDimensions(); ++d) shape += (d ? ", " : "") + std::to_string(info.GetShape()[d]);
        list += (i ? ", " : "") + ("{\"id\": " + std::to_string(outputs[i].first)) + ", \"name\": " + Quoted(bindings.names[i]) +
                ", \"type\": " + Quoted(armnn::GetDataTypeName(info.GetDataType())) + ", \"shape\": [" + shape + "]}";
        std::ofstream file(arguments.folder + "/out_" + std::to_string(outputs[i].first) + ".bin", std::ios::binary);
        file.write(static_cast<const char*>(outputs[i].second.GetMemoryArea()), std::streamsize(info.GetNumBytes()));
    }
    return list;
}

} // namespace

int main(int count, char** texts)
{
    try
    {
        const Arguments arguments = Parse(count, texts);
        armnn::ConfigureLogging(true, false, armnn::LogSeverity::Warning);
        std::string stage, answer;
        std::vector<std::string> messages;
        try
        {
            const std::string outputs = Run(arguments, stage, messages);
            answer = "{\"ok\": true, \"outputs\": [" + outputs + "], \"messages\": " + example::QuotedList(messages) + "}\n";
        }
        catch (const std::exception& error)
        {
            answer = "{\"ok\": false, \"stage\": " + Quoted(stage) + ", \"error\": " + Quoted(error.what()) +
                     ", \"messages\": " + example::QuotedList(messages) + "}\n";
        }
        std::ofstream(arguments.folder + "/answer.json") << answer;
        return 0;
    }
    catch (const std::exception& error)
    {
        std::fprintf(stderr, "%s\n", error.what());
        return 2;
    }
}
