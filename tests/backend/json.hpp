// Writing JSON: what the backend and the runner tell the tests.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

namespace example
{

inline std::string Quoted(const std::string& text)
{
    std::string quoted = "\"";
    for (unsigned char c : text)
    {
        char code[8];
        std::snprintf(code, sizeof code, "\\u%04x", unsigned(c));
        if (c == '"' || c == '\\') (quoted += '\\') += char(c);
        else if (c < 0x20) quoted += code;
        else quoted += char(c);
    }
    return quoted + '"';
}

inline std::string QuotedList(const std::vector<std::string>& texts)
{
    std::string list = "[";
    for (const std::string& text : texts) list += (list.size() > 1 ? ", " : "") + Quoted(text);
    return list + "]";
}

} // namespace example
