// Names of grouped layers: `ConvRelu:` then a counter, a checksum of ten digits, `/`, and the layer's former name.
#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

namespace example
{

struct GroupName
{
    std::string prefix; ///< up to and with the slash: the same for all layers of one group, and for no others
    std::string result; ///< the group's name in its rule
    uint32_t counter;
    std::string rest; ///< the name that the layer had before
};

/// CRC-32 as of zlib: reflected polynomial edb88320.
inline uint32_t Crc32(const std::string& bytes)
{
    uint32_t crc = 0xffffffffu;
    for (unsigned char byte : bytes)
    {
        crc ^= byte;
        for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? crc >> 1 ^ 0xedb88320u : crc >> 1;
    }
    return ~crc;
}

/// The parts of a layer's name, or nothing where it is in no group: the checksum tells a group's prefix from a name
/// that happens to look like one.
inline std::optional<GroupName> GroupOf(const std::string& name)
{
    constexpr size_t checksumDigits = 10, counterDigits = 9;
    const auto digit = [](char c) { return c >= '0' && c <= '9'; };
    const auto letter = [](char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_'; };

    const size_t colon = name.find(':');
    if (colon == std::string::npos || colon == 0 || !letter(name[0])) return std::nullopt;
    for (size_t i = 1; i < colon; ++i)
        if (!letter(name[i]) && !digit(name[i])) return std::nullopt;
    size_t slash = colon + 1;
    while (slash < name.size() && digit(name[slash])) ++slash;
    const size_t digits = slash - colon - 1;
    if (slash == name.size() || name[slash] != '/' || digits <= checksumDigits || digits > checksumDigits + counterDigits) return std::nullopt;

    const std::string result = name.substr(0, colon), counter = name.substr(colon + 1, digits - checksumDigits);
    if (counter[0] == '0') return std::nullopt;
    char checksum[16];
    std::snprintf(checksum, sizeof checksum, "%010u", unsigned(Crc32("fusion-engine group" + result + ":" + counter)));
    if (name.compare(slash - checksumDigits, checksumDigits, checksum) != 0) return std::nullopt;
    return GroupName{name.substr(0, slash + 1), result, uint32_t(std::stoul(counter)), name.substr(slash + 1)};
}

} // namespace example
