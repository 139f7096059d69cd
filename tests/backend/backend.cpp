// A backend for Arm NN 23.08 that runs the opaque layers of fusion-engine, and on request its groups, by plain C++ code.
//
// Arm NN opens it as a dynamic backend: by its file name, Arm_Example_backend.so, and three C functions (at the end).
// Options come with IRuntime::CreationOptions::m_BackendOptions, under this backend's name, and hold until the next
// runtime is made. (Model options do not reach IsLayerSupported: Arm NN asks for it without them.)
//
//     Report           a file; what the backend is asked and what it does is appended, one JSON object per line
//     Codes            "7,9": claim only StandIns whose recipe has one of these codes; claimed are all, by default
//     ClaimConstants   false leaves Constant layers to the other backends; true by default
//     Groups           true compiles groups of ordinary layers; false by default
#include "group.hpp"
#include "json.hpp"
#include "layers.hpp"

#include <armnn/backends/IBackendInternal.hpp>
#include <armnn/backends/ILayerSupport.hpp>
#include <armnn/backends/OptimizationViews.hpp>
#include <armnn/backends/TensorHandle.hpp>
#include <armnn/backends/WorkloadFactory.hpp>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

namespace
{

using namespace example;
using armnn::LayerType;
using armnn::TensorInfo;

const armnn::BackendId& Id()
{
    static const armnn::BackendId id("Example");
    return id;
}

struct Options
{
    std::string report, codes;
    bool claimConstants = true, groups = false;

    void Set(const std::string& name, const armnn::BackendOptions::Var& value)
    {
        if (name == "Report") report = armnn::ParseStringBackendOption(value, report);
        else if (name == "Codes") codes = armnn::ParseStringBackendOption(value, codes);
        else if (name == "ClaimConstants") claimConstants = armnn::ParseBooleanBackendOption(value, claimConstants);
        else if (name == "Groups") groups = armnn::ParseBooleanBackendOption(value, groups);
        else throw armnn::InvalidArgumentException("the Example backend has no option " + name);
    }

    bool Runs(int code) const
    {
        if (codes.empty()) return true;
        std::istringstream list(codes);
        for (std::string one; std::getline(list, one, ',');)
            if (std::stoi(one) == code) return true;
        return false;
    }

    void Tell(const std::string& event, const std::string& members) const
    {
        if (report.empty()) return;
        std::ofstream(report, std::ios::app) << "{\"event\": " << Quoted(event) << ", " << members << "}\n";
    }
};

/// Arm NN makes backend objects whenever it asks one something, so the options are the library's.
Options& Current()
{
    static Options options;
    return options;
}

/// Memory of this backend's own: Arm NN copies tensors in and out where a neighbour has another backend.
class Memory : public armnn::ITensorHandle
{
public:
    explicit Memory(const TensorInfo& info) : m_Info(info) {}

    void Manage() override {}
    void Allocate() override { m_Bytes.resize(m_Info.GetNumBytes()); }
    armnn::ITensorHandle* GetParent() const override { return nullptr; }
    const void* Map(bool) const override { return m_Bytes.data(); }
    void Unmap() const override {}
    armnn::TensorShape GetStrides() const override { return armnn::GetUnpaddedTensorStrides(m_Info); }
    armnn::TensorShape GetShape() const override { return m_Info.GetShape(); }
    void CopyOutTo(void* to) const override { std::memcpy(to, m_Bytes.data(), m_Bytes.size()); }
    void CopyInFrom(const void* from) override { std::memcpy(m_Bytes.data(), from, m_Bytes.size()); }

private:
    TensorInfo m_Info;
    mutable std::vector<uint8_t> m_Bytes;
};

/// What a PreCompiled layer holds.
struct Blob
{
    Program program;
    std::string name;
};

class ProgramWorkload : public armnn::BaseWorkload<armnn::PreCompiledQueueDescriptor>
{
public:
    ProgramWorkload(const armnn::PreCompiledQueueDescriptor& descriptor, const armnn::WorkloadInfo& info, Options options)
        : BaseWorkload(descriptor, info), m_Options(std::move(options))
    {}

    void Execute() const override
    {
        const Blob& blob = *static_cast<const Blob*>(m_Data.m_PreCompiledObject);
        std::vector<const void*> inputs;
        for (const armnn::ITensorHandle* input : m_Data.m_Inputs) inputs.push_back(input->Map(true));
        armnn::ITensorHandle* output = m_Data.m_Outputs[0];
        blob.program.Run(inputs, output->Map(true));
        output->Unmap();
        for (const armnn::ITensorHandle* input : m_Data.m_Inputs) input->Unmap();
        m_Options.Tell("ran", "\"name\": " + Quoted(blob.name));
    }

private:
    Options m_Options;
};

/// A claimed Constant that something else than this backend's programs reads.
class ConstantWorkload : public armnn::BaseWorkload<armnn::ConstantQueueDescriptor>
{
public:
    using BaseWorkload::BaseWorkload;

    void Execute() const override
    {
        armnn::ITensorHandle* output = m_Data.m_Outputs[0];
        const armnn::ConstTensorHandle& tensor = *m_Data.m_LayerOutput;
        std::memcpy(output->Map(true), tensor.Map(true), tensor.GetTensorInfo().GetNumBytes());
        output->Unmap();
        tensor.Unmap();
    }
};

class Factory : public armnn::IWorkloadFactory
{
public:
    explicit Factory(Options options) : m_Options(std::move(options)) {}

    const armnn::BackendId& GetBackendId() const override { return Id(); }
    bool SupportsSubTensors() const override { return false; }

    std::unique_ptr<armnn::ITensorHandle> CreateSubTensorHandle(armnn::ITensorHandle&, const armnn::TensorShape&,
                                                                const unsigned int*) const override
    {
        return nullptr;
    }
    std::unique_ptr<armnn::ITensorHandle> CreateTensorHandle(const TensorInfo& info, bool) const override
    {
        return std::make_unique<Memory>(info);
    }
    std::unique_ptr<armnn::ITensorHandle> CreateTensorHandle(const TensorInfo& info, armnn::DataLayout, bool) const override
    {
        return std::make_unique<Memory>(info);
    }

    std::unique_ptr<armnn::IWorkload> CreateWorkload(LayerType type, const armnn::QueueDescriptor& descriptor,
                                                     const armnn::WorkloadInfo& info) const override
    {
        if (type == LayerType::PreCompiled)
            return std::make_unique<ProgramWorkload>(static_cast<const armnn::PreCompiledQueueDescriptor&>(descriptor), info, m_Options);
        if (type == LayerType::Constant)
            return std::make_unique<ConstantWorkload>(static_cast<const armnn::ConstantQueueDescriptor&>(descriptor), info);
        return nullptr;
    }

private:
    Options m_Options;
};

/// Answers by TensorInfos: Arm NN shows neither names nor data here.
class Support : public armnn::ILayerSupport
{
public:
    explicit Support(Options options) : m_Options(std::move(options)) {}
    ~Support() override = default;

    bool IsLayerSupported(const LayerType& type, const std::vector<TensorInfo>& infos, const armnn::BaseDescriptor& descriptor,
                          const armnn::Optional<armnn::LstmInputParamsInfo>&, const armnn::Optional<armnn::QuantizedLstmInputParamsInfo>&,
                          armnn::Optional<std::string&> reason) const override
    {
        if (type == LayerType::StandIn)
        {
            const unsigned inputs = static_cast<const armnn::StandInDescriptor&>(descriptor).m_NumInputs;
            const bool ours = inputs && MayBeRecipe(infos.at(inputs - 1));
            const int code = ours ? infos[inputs - 1].GetQuantizationOffset() : 0;
            const bool answer = ours && m_Options.Runs(code);
            if (!answer && reason.has_value())
                reason.value() = ours ? "the Example backend has no code " + std::to_string(code) : "the StandIn has no recipe";
            m_Options.Tell("asked", "\"inputs\": " + std::to_string(inputs) + ", \"outputs\": " + std::to_string(infos.size() - inputs) +
                                        ", \"code\": " + std::to_string(code) + ", \"answer\": " + (answer ? "true" : "false"));
            return answer;
        }
        if (type == LayerType::Constant) return m_Options.claimConstants;
        return m_Options.groups && IsOrdinary(type, descriptor);
    }

private:
    Options m_Options;
};

/// What becomes of the layers of one view.
///
/// It is all or nothing. Where a view has anything that failed, Arm NN 23.08 asks the next backends for every layer of
/// the view, also for those that were substituted and are gone by then, and crashes. So where one layer cannot be
/// compiled, all are left to the next backends; for a StandIn there is none, and Optimize throws.
class Optimizer
{
public:
    Optimizer(const armnn::SubgraphView& view, const Options& options) : m_View(view), m_Options(options) {}

    armnn::OptimizationViews Run()
    {
        armnn::OptimizationViews views;
        std::vector<Compiled> compiled;
        bool complete = true;
        for (const std::vector<Layer*>& layers : Parts())
        {
            const auto group = GroupOf(layers[0]->GetName());
            const std::string name = group && m_Options.groups ? group->prefix : layers[0]->GetName();
            try
            {
                compiled.push_back(layers[0]->GetType() == LayerType::StandIn ? CompileStandIn(*layers[0]) : CompileLayers(layers));
                compiled.back().name = name;
            }
            catch (const std::exception& error)
            {
                complete = false;
                m_Options.Tell("rejected", "\"name\": " + Quoted(name) + ", \"reason\": " + Quoted(error.what()));
            }
        }
        if (complete)
        {
            for (Layer* layer : m_View.GetIConnectableLayers())
                if (layer->GetType() == LayerType::Constant) Settle(*layer, compiled, views);
            for (Compiled& part : compiled) Substitute(part, views);
        }
        else views.AddFailedSubgraph(armnn::SubgraphView(m_View));
        return views;
    }

private:
    // Layers that become one: a StandIn, a group, or any other layer by itself.
    std::vector<std::vector<Layer*>> Parts() const
    {
        std::vector<std::vector<Layer*>> parts;
        std::map<std::string, size_t> places; // of groups in `parts`, by prefix
        for (Layer* layer : m_View.GetIConnectableLayers())
        {
            if (layer->GetType() == LayerType::Constant) continue;
            const auto group = GroupOf(layer->GetName());
            if (group && layer->GetType() != LayerType::StandIn)
            {
                const auto [place, first] = places.emplace(group->prefix, parts.size());
                if (!first)
                {
                    parts[place->second].push_back(layer);
                    continue;
                }
            }
            parts.push_back({layer});
        }
        return parts;
    }

    void Substitute(Compiled& part, armnn::OptimizationViews& views) const
    {
        m_Options.Tell("compiled", "\"name\": " + Quoted(part.name) + ", \"result\": " + Quoted(part.result) + ", \"code\": " +
                                       std::to_string(part.code) + ", \"layers\": " + QuotedList(part.types) +
                                       ", \"constants\": " + std::to_string(part.constants.size()));
        const armnn::PreCompiledDescriptor descriptor(unsigned(part.inputs.size()), 1);
        armnn::CompiledBlobPtr blob(new Blob{std::move(part.program), part.name}, [](const void* p) { delete static_cast<const Blob*>(p); });
        Layer* layer = views.GetINetwork()->AddPrecompiledLayer(descriptor, std::move(blob), Id(), part.name.c_str());
        // The replaced layers' other input slots, those of Constants, are in no view: they go with their layers.
        armnn::SubgraphView before({part.layers.begin(), part.layers.end()}, std::move(part.inputs), {part.output});
        views.AddSubstitution({std::move(before), armnn::SubgraphView(layer)});
    }

    // A claimed Constant that is only read by layers whose programs hold its tensor is deleted; any other stays.
    void Settle(Layer& constant, const std::vector<Compiled>& compiled, armnn::OptimizationViews& views) const
    {
        armnn::IOutputSlot& output = constant.GetOutputSlot(0);
        bool needed = false;
        for (unsigned i = 0; i < output.GetNumConnections(); ++i)
        {
            armnn::IInputSlot* slot = output.GetConnection(i);
            needed = needed || std::none_of(compiled.begin(), compiled.end(), [slot](const Compiled& part)
                                            { return std::find(part.constants.begin(), part.constants.end(), slot) != part.constants.end(); });
        }
        if (needed) views.AddUntouchedSubgraph(armnn::SubgraphView(&constant));
        else views.AddDeletedSubgraph(armnn::SubgraphView(&constant));
        m_Options.Tell("constant", "\"name\": " + Quoted(constant.GetName()) + ", \"kept\": " + (needed ? "true" : "false"));
    }

    const armnn::SubgraphView& m_View;
    const Options& m_Options;
};

class Backend : public armnn::IBackendInternal
{
public:
    const armnn::BackendId& GetId() const override { return Id(); }

    IBackendContextPtr CreateBackendContext(const armnn::IRuntime::CreationOptions& creation) const override
    {
        Options given;
        armnn::ParseOptions(creation.m_BackendOptions, Id(),
                            [&](const std::string& name, const armnn::BackendOptions::Var& value) { given.Set(name, value); });
        Current() = given;
        return nullptr;
    }

    IWorkloadFactoryPtr CreateWorkloadFactory(const IMemoryManagerSharedPtr&) const override
    {
        return std::make_unique<Factory>(Current());
    }

    ILayerSupportSharedPtr GetLayerSupport() const override { return std::make_shared<Support>(Current()); }

    armnn::OptimizationViews OptimizeSubgraphView(const armnn::SubgraphView& view) const override
    {
        return Optimizer(view, Current()).Run();
    }
};

} // namespace

#define EXPORTED __attribute__((visibility("default")))

extern "C"
{
    EXPORTED const char* GetBackendId() { return Id().Get().c_str(); }

    EXPORTED void GetVersion(uint32_t* major, uint32_t* minor)
    {
        if (!major || !minor) return;
        *major = armnn::IBackendInternal::GetApiVersion().m_Major;
        *minor = armnn::IBackendInternal::GetApiVersion().m_Minor;
    }

    EXPORTED void* BackendFactory() { return new Backend; }
}
