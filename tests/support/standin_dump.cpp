// Prints what standin.hpp reads: per record of standard input (length as 4 bytes, least first, then the bytes) a line
// of JSON, or {"error": ...}. Texts are hexadecimal and floats are their bits, so that a comparison is exact.

#include <fusion_engine/standin.hpp>

#include <cstdio>
#include <iostream>
#include <iterator>

using namespace fusion_engine;

namespace
{

std::string text(const std::string& value)
{
    static const char digits[] = "0123456789abcdef";
    std::string found = "\"";
    for (const char c : value)
    {
        found += digits[static_cast<unsigned char>(c) >> 4U];
        found += digits[static_cast<unsigned char>(c) & 15U];
    }
    return found + '"';
}

std::string real(float value)
{
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    char shown[32];
    std::snprintf(shown, sizeof shown, "{\"f\":\"%08x\"}", static_cast<unsigned>(bits));
    return shown;
}

std::string truth(bool value) { return value ? "true" : "false"; }

std::string scalar(const Json& value)
{
    switch (value.kind())
    {
        case Json::Kind::Boolean:
            return truth(value.boolean());
        case Json::Kind::Integer:
            return std::to_string(value.integer());
        case Json::Kind::Number:
            return real(value.number());
        case Json::Kind::String:
            return text(value.string());
        default:
            return "null";
    }
}

/// Any value, without recursion.
std::string json(const Json& whole)
{
    struct Open
    {
        Json value;
        std::size_t next;
    };
    std::string found;
    std::vector<Open> open;
    const auto begin = [&](const Json& value) {
        if (value.kind() == Json::Kind::Array || value.kind() == Json::Kind::Object)
        {
            found += value.kind() == Json::Kind::Array ? '[' : '{';
            open.push_back({value, 0});
        }
        else
        {
            found += scalar(value);
        }
    };
    begin(whole);
    while (!open.empty())
    {
        const Json value = open.back().value;
        const std::size_t index = open.back().next++;
        const bool list = value.kind() == Json::Kind::Array;
        if (index == value.size())
        {
            found += list ? ']' : '}';
            open.pop_back();
            continue;
        }
        found += index ? "," : "";
        if (list)
        {
            begin(value.at(index));
            continue;
        }
        found += text(value.key(index)) + ':';
        begin(value.at(value.key(index)));
    }
    return found;
}

template <typename Values, typename Show>
std::string list(const Values& values, Show show)
{
    std::string found = "[";
    for (std::size_t index = 0; index < values.size(); ++index)
    {
        found += (index ? "," : "") + show(values[index]);
    }
    return found + "]";
}

std::string number(std::int64_t value) { return std::to_string(value); }

std::string tensor(const TensorDescription& info)
{
    if (!info.given)
    {
        return "null";
    }
    return "[" + text(info.dataType) + "," + list(info.shape, number) + "," + list(info.scales, real) + "," +
           number(info.offset) + "," + number(info.quantizationDim) + "," + number(info.dimensionality) + "," +
           list(info.dimensionSpecificity, truth) + "," + truth(info.isConstant) + "]";
}

std::string source(const Source& from)
{
    static const char* const kinds[] = {"input", "layer", "constant"};
    return std::string("[\"") + kinds[static_cast<int>(from.kind)] + "\"," + number(from.index) + "," +
           number(from.slot) + "]";
}

std::string constant(const ConstantDescription& was)
{
    return "[" + number(was.layer) + "," + text(was.field) + "," + number(was.slot) + "," + text(was.name) + "," +
           text(was.layout) + "]";
}

std::string head(const Recipe& recipe)
{
    std::string found = "[" + text(recipe.result) + "," + text(recipe.rule) + "," + number(recipe.code) + "," +
                        text(recipe.dialect) + "," + list(recipe.featureVersions, number) + "," +
                        number(recipe.inputs) + "," + list(recipe.constants, constant) + "," +
                        list(recipe.outputs, number) + "," + number(static_cast<std::int64_t>(recipe.slots())) + ",";
    std::string tensors;
    for (std::size_t index = 0; index < recipe.layers.size(); ++index)
    {
        for (const char* const field : {"weights", "biases", "mean"})
        {
            const auto at = recipe.findConstant(index, field);
            tensors += (tensors.empty() ? "" : ",") + (at ? number(*at) : std::string("null"));
        }
    }
    return found + "[" + tensors + "]]";
}

std::string layer(const LayerDescription& was)
{
    const auto override_ = [](const OverrideDescription& one) {
        return "[" + number(one.slot) + "," + truth(one.isOverridden) + "," + tensor(one.info) + "]";
    };
    return "[" + text(was.type) + "," + text(was.name) + "," + json(was.params) + "," + list(was.inputs, source) +
           "," + list(was.outputs, tensor) + "," + list(was.overrides, override_) + "," +
           truth(static_cast<bool>(was.recipe)) + "]";
}

/// The heads and layers of a recipe and those inside it, nearest first.
std::string dump(const Recipe& outermost)
{
    std::string found = "[";
    std::vector<const Recipe*> pending{&outermost};
    for (std::size_t index = 0; index < pending.size(); ++index)
    {
        const Recipe& recipe = *pending[index];
        found += (index ? ",[" : "[") + head(recipe) + "," + list(recipe.layers, layer) + "]";
        for (const LayerDescription& inside : recipe.layers)
        {
            if (inside.recipe)
            {
                pending.push_back(inside.recipe.get());
            }
        }
    }
    return found + "]";
}

} // namespace

int main()
{
    const std::string all((std::istreambuf_iterator<char>(std::cin)), std::istreambuf_iterator<char>());
    for (std::size_t position = 0; position + 4 <= all.size();)
    {
        std::size_t size = 0;
        for (std::size_t byte = 4; byte-- > 0;)
        {
            size = size << 8U | static_cast<unsigned char>(all[position + byte]);
        }
        // Memory of its own, so that reading past the end is found out.
        const std::vector<char> record(all.begin() + static_cast<std::ptrdiff_t>(position + 4),
                                       all.begin() + static_cast<std::ptrdiff_t>(position + 4 + size));
        position += 4 + size;
        try
        {
            std::cout << dump(Recipe::parse(record.data(), record.size())) << '\n';
        }
        catch (const RecipeError& error)
        {
            std::cout << "{\"error\":" << text(error.what()) << ",\"place\":" << text(error.place()) << "}\n";
        }
    }
    return 0;
}
